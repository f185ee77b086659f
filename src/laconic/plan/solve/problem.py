"""A placement problem: tables, machines, the cost of any places, and the error if none fit.

Shape legend: ``T`` tables, ``K`` resources, ``N`` ranks.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from laconic.cost.link import message_bytes
from laconic.cost.load import Load, Place, Resource, TableCosts
from laconic.cost.speeds import EngineSpeeds
from laconic.cost.timeline import StepTime, Timeline
from laconic.cost.topology import Cluster
from laconic.cost.workload import TableLoad, Workload
from laconic.errors import PlanError

__all__ = ["Problem", "does_not_fit", "size_text"]

Floats = NDArray[np.float64]
_CUTS = 20  # numbers of hot rows that are tried per table


class Problem:
    """The problem that the planner and every baseline solve."""

    def __init__(self, cluster: Cluster, workload: Workload, speeds: EngineSpeeds | None = None) -> None:
        self.cluster, self.workload = cluster, workload
        self.speeds = speeds or EngineSpeeds()
        self.ranks = cluster.ranks
        self.timeline = Timeline(cluster, workload, self.speeds)
        self.costs = [TableCosts(table, workload, self.speeds, self.ranks) for table in workload.tables]

    @cached_property
    def kinds(self) -> tuple[Place, ...]:
        """Kinds of places on this cluster; a cold table-wise table needs a rank that has files."""
        warm = [
            Place("row"),
            Place("row", "pooled"),
            Place("table"),
            Place("table", "pooled"),
            Place("replicated"),
        ]
        if self.ranks == 1:
            warm = [Place("row")]
        files_N = self.timeline.file_space_N > 0
        cold = [
            Place(kind.sharding, kind.send, cold=True)
            for kind in warm
            if kind.sharding != "replicated"
            and (files_N.any() if kind.sharding == "table" else files_N.all())
        ]
        return (*warm, *cold)

    def owners(self, kind: Place) -> NDArray[np.int64]:
        """Return ranks that can own a table of this kind."""
        ranks = np.arange(self.ranks)
        return ranks[self.timeline.file_space_N > 0] if kind.cold else ranks

    @cached_property
    def cuts(self) -> list[tuple[int, ...]]:
        """Numbers of hot rows to try for each table: 0, then by a constant factor."""
        smallest = float(self.cluster.memory_N.min())
        return [self._cuts_of(table, smallest) for table in self.workload.tables]

    def _cuts_of(self, table: TableLoad, memory: float) -> tuple[int, ...]:
        most = min(table.candidates, int(memory / self.workload.row_bytes))
        if self.ranks == 1 or most < 1:
            return (0,)
        return (0, *(int(k) for k in np.unique(np.rint(np.geomspace(1, most, _CUTS)))))

    def warm_rows(self, t: int, place: Place, rows: float) -> int:
        """Limit warm rows of a table to known ones, as many on each rank if it is row-wise."""
        count = int(min(rows, self.workload.tables[t].candidates - place.hot))
        return max(count - count % self.ranks if place.sharding == "row" else count, 0)

    def load(self, t: int, place: Place) -> Load:
        """Return the load of one table, which does not depend on who its owner is."""
        return self.costs[t].load(replace(place, owner=None))

    def spread_KN(self, t: int, place: Place) -> Floats:
        """Return the load of one table on every rank."""
        load = self.load(t, place)
        load_KN: Floats = np.repeat((load.all_K + load.others_K)[:, None], self.ranks, axis=1)
        if place.owner is not None:
            load_KN[:, place.owner] += load.owner_extra_K
        return load_KN

    @cached_property
    def headers_KN(self) -> Floats:
        """Load of the headers of size messages, which are sent wherever tables are."""
        load_KN: Floats = np.zeros((len(Resource), self.ranks))
        for first in (Resource.IDS_OUT, Resource.FORWARD_OUT, Resource.BACKWARD_OUT):
            load_KN[[first, first + 1]] = message_bytes(0, self.ranks)
            load_KN[first + 2] = message_bytes(0, min(self.ranks, 2))
        return load_KN

    def total_KN(self, places: Sequence[Place]) -> Floats:
        """Return the load of all tables and of size messages on every rank."""
        loads = (self.spread_KN(t, place) for t, place in enumerate(places))
        total_KN: Floats = np.sum([self.headers_KN, *loads], axis=0)
        return total_KN

    def step(self, places: Sequence[Place], *, look_ahead: bool = False) -> StepTime:
        """Return the time of a step with these places."""
        total_KN = self.total_KN(places)
        prefetch_saves_s = (
            self.timeline.prefetch_saves_s(total_KN, self._prefetched_KN(places)) if look_ahead else 0.0
        )
        return self.timeline.explain(total_KN, prefetch_saves_s)

    def _prefetched_KN(self, places: Sequence[Place]) -> Floats:
        """Return the load of rows that can be prefetched."""
        loads = [self.load(t, place).prefetched * self.spread_KN(t, place) for t, place in enumerate(places)]
        prefetched_KN: Floats = np.sum(loads, axis=0)
        return prefetched_KN

    def shortage(self, places: Sequence[Place]) -> float:
        """Return bytes of memory that are missing with these places."""
        return float(self.timeline.shortage(self.total_KN(places)))


def does_not_fit(problem: Problem) -> PlanError:
    """Return the error with the bytes that are missing, the largest table, and remedies."""
    workload, ranks = problem.workload, problem.ranks
    largest = max(workload.tables, key=lambda table: table.rows)
    whole = workload.row_bytes * largest.rows
    room_N = problem.cluster.memory_N + problem.timeline.file_space_N
    have = float(room_N.sum())
    share = float(sum(math.ceil(table.rows / ranks) for table in workload.tables)) * workload.row_bytes
    devices = f"{ranks} devices have" if ranks > 1 else "the device has"
    text = (
        f"placement: table {largest.name!r} needs {size_text(whole)}; all tables need "
        f"{size_text(workload.table_bytes)}, {devices} {size_text(have)}"
    )
    short = workload.table_bytes - have
    tier = _gb(_tier_bytes(problem))
    if short > 0:
        more = math.ceil(short / (have / ranks))
        return PlanError(
            f"{text}: {size_text(short)} short; raise memory_gb by {_gb(short / ranks)} on each, add {more} of them, "
            f"or give each a tier of {tier} GB"
        )
    smallest = int(np.argmin(room_N))
    if share > room_N[smallest]:
        return PlanError(
            f"{text}, but a table is on one device, or dealt to all alike: of a share of {size_text(share)} device "
            f"{smallest} is {size_text(share - room_N[smallest])} short; raise its memory_gb to {_gb(share)}, or give "
            f"it a tier of {tier} GB"
        )
    return PlanError(
        f"{text}, but a table in files needs room there for all its rows; raise memory_gb to {_gb(share)}, or give each a "
        f"tier of {tier} GB"
    )


def _tier_bytes(problem: Problem) -> float:
    """Return bytes that a tier must have: shares of the largest tables, until others fit."""
    workload, ranks = problem.workload, problem.ranks
    shares = sorted(math.ceil(table.rows / ranks) * workload.row_bytes for table in workload.tables)
    memory, files = float(problem.cluster.memory_N.min()), 0
    while shares and sum(shares) > memory:
        files += shares.pop()
    return files


def size_text(nbytes: float) -> str:
    """Write bytes in decimal units with three significant digits: 12.4 GB."""
    for unit, factor in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if nbytes >= factor:
            return f"{nbytes / factor:.3g} {unit}"
    return f"{nbytes:.0f} bytes"


def _gb(nbytes: float) -> str:
    """Write gigabytes, rounded up to two digits so that they suffice."""
    if nbytes <= 0:
        return "0"
    value = nbytes / 1e9
    unit = 10.0 ** (math.floor(math.log10(value)) - 1)
    return f"{math.ceil(value / unit) * unit:.2g}"
