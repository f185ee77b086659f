"""Load of a table on each rank in a step, by its place: bytes by direction, work, memory.

A place treats all ranks alike, or singles out one of them, the owner::

    on rank j   all + (owner if j is the owner, else others)

So three vectors are enough for any number of ranks. Bytes of a direction are counted where they
leave, where they arrive, and on the *lane* between two ranks, of which the busiest counts.

With N ranks, U distinct rows that a rank needs, L lookups and B samples per rank, a rank's share is

===============  ========================  ========================  =======================
place            ids                       forward                   backward
===============  ========================  ========================  =======================
row, rows        U (N - 1) / N out and in  U (N - 1) / N out and in  the same, the other way
table, rows      U to the owner            U from the owner          U to the owner
table, pooled    L to the owner            B from the owner          B to the owner
row, pooled      L (N - 1) / N             B (N - 1)                 B (N - 1)
replicated, hot  as backward               nothing                   (U + V) (N - 1) / N
===============  ========================  ========================  =======================

``V`` rows are those that any rank needs: owners send their sums to all. Two ranks send each other
U. Shape legend: ``K`` resources, in the order of ``Resource``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from laconic.config import Bytes, Settings
from laconic.cost.link import message_bytes, owners_sum
from laconic.cost.needed_rows import NeededRows
from laconic.cost.speeds import EngineSpeeds
from laconic.cost.workload import RowCoding, TableLoad, Workload

__all__ = ["Load", "Place", "PredictedBytes", "Resource", "TableCosts"]

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Place:
    """Where one table lives and what it sends."""

    sharding: Literal["table", "row", "replicated"]
    send: Literal["rows", "pooled"] = "rows"
    cold: bool = False
    """Whether the table is in files on disk."""

    owner: int | None = None
    """Rank that has the whole table, if it is sharded table-wise."""

    hot: int = 0
    """Number of hot rows: the most frequent ones, which every rank has a copy of."""

    warm: int = 0
    """Number of warm rows of a cold table, which are in memory all the same: the most frequent ones
    behind the hot ones."""

    @property
    def kind(self) -> Place:
        """The place without its numbers: no owner, no hot and no warm rows."""
        return Place(self.sharding, self.send, self.cold)

    @property
    def can_have_hot_rows(self) -> bool:
        """Whether ranks may have copies of rows: not if they have all, nor if owners pool them."""
        return self.sharding != "replicated" and self.send == "rows"

    def __str__(self) -> str:
        one = "one rank" if self.owner is None else f"rank {self.owner}"
        words = {"table": one, "row": "by rows", "replicated": "everywhere"}[self.sharding]
        words += (", pooled" if self.send == "pooled" else "") + (", in files" if self.cold else "")
        words += f", {self.warm:,} warm" if self.warm else ""
        return words + (f", {self.hot:,} hot" if self.hot else "")


class Resource(IntEnum):
    """Resources that a rank has a limited amount of; bytes, unless another unit is named."""

    IDS_OUT = 0
    IDS_IN = 1
    IDS_LANE = 2
    FORWARD_OUT = 3
    FORWARD_IN = 4
    FORWARD_LANE = 5
    BACKWARD_OUT = 6
    BACKWARD_IN = 7
    BACKWARD_LANE = 8
    FILES = 9
    """Bytes read from and written to files."""
    CPU = 10
    """Seconds of work."""
    RAM = 11
    """Bytes kept in memory."""
    FILE_SPACE = 12
    """Bytes kept in files."""


class PredictedBytes(Settings):
    """Bytes that a table sends per rank and step, the mean over ranks, as the ledger counts."""

    ids: Bytes = 0.0
    """Bytes of ids, which name the rows that are wanted."""

    forward: Bytes = 0.0
    """Bytes of rows, or of pooled vectors."""

    backward: Bytes = 0.0
    """Bytes of gradients, those of replicated tables included."""

    hot: Bytes = 0.0
    """Bytes of gradients of hot rows, with their ids."""

    @property
    def total(self) -> float:
        """Bytes of all four together."""
        return self.ids + self.forward + self.backward + self.hot


@dataclass(frozen=True, slots=True, eq=False)
class Load:
    """Amount of each resource that one table takes."""

    all_K: Floats
    owner_K: Floats
    others_K: Floats
    sent: PredictedBytes = field(default_factory=PredictedBytes)
    """Bytes that a rank sends in a step, the mean over ranks."""

    prefetched: float = 0.0
    """Share of the forward bytes that can be prefetched a step early."""

    @property
    def owner_extra_K(self) -> Floats:
        """What the owner takes more than others."""
        return self.owner_K - self.others_K

    def mean_K(self, ranks: int) -> Floats:
        """Return the mean over ``ranks`` ranks, one of them the owner."""
        return self.all_K + (self.owner_K + (ranks - 1) * self.others_K) / ranks

    def beyond(self, other: Load) -> Load:
        """Return what this load takes more of each resource than another."""
        return Load(self.all_K - other.all_K, self.owner_K - other.owner_K, self.others_K - other.others_K)


class _Sum:
    """A load that is added up, exchange by exchange."""

    def __init__(self, ranks: int) -> None:
        self.ranks = ranks
        self.even, self.owner, self.other = (np.zeros(len(Resource)) for _ in range(3))

    def spread(self, first: Resource, lane: float) -> float:
        """Let every rank send this to every other one; return what a rank sends."""
        total = (self.ranks - 1) * lane
        self.even[[first, first + 1]] += total
        self.even[first + 2] += lane
        return total

    def announce(self, blocks: int) -> None:
        """Add the bytes of blocks in size messages; lengths of bags are blocks beside ids."""
        for first, each in ((Resource.IDS_OUT, 2), (Resource.FORWARD_OUT, 1), (Resource.BACKWARD_OUT, 1)):
            self.spread(first, message_bytes(each * blocks, 2) - message_bytes(0, 2))

    def gather(self, first: Resource, lane: float, *, away: bool = False) -> float:
        """Let every rank send this to the owner, or get it; return what a rank sends on average."""
        total = (self.ranks - 1) * lane
        many, one = (first, first + 1) if away else (first + 1, first)
        self.owner[many] += total
        self.other[one] += lane
        self.owner[first + 2] += lane
        return total / self.ranks


class TableCosts:
    """Loads of one table, for any place."""

    def __init__(self, table: TableLoad, workload: Workload, speeds: EngineSpeeds, ranks: int) -> None:
        self.table, self.ranks, self._speeds = table, ranks, speeds
        self.needed = NeededRows(table, workload, ranks)
        self.row_bytes = workload.row_bytes
        self._samples, self._vector = workload.batch, workload.vector_bytes
        self._loads: dict[Place, Load] = {}

    def load(self, place: Place) -> Load:
        """Return the load of a place."""
        if place not in self._loads:
            self._loads[place] = self._of(place)
        return self._loads[place]

    def _of(self, place: Place) -> Load:
        sum_ = _Sum(self.ranks)
        if place.send == "pooled":
            sent = self._pooled(sum_, place.kind)
        elif place.sharding == "replicated":
            needed = self.needed
            ids, vectors = self._copied(
                sum_, needed.distinct, needed.distinct, needed.united(self.table.rows)
            )
            sent = {"ids": ids, "backward": vectors}
        else:
            sent = self._rows(sum_, place)
        sum_.announce(1)
        self._keep(sum_, place)
        return Load(sum_.even, sum_.owner, sum_.other, PredictedBytes(**sent), self._prefetched(place))

    def _rows(self, sum_: _Sum, place: Place) -> dict[str, float]:
        """Send distinct rows without hot ones, whose gradients go to all ranks."""
        hot = self.needed.hot(place.hot)
        rows, row_wise = self.needed.distinct - hot, place.sharding == "row"
        lane = rows / self.ranks if row_wise else rows
        sent = self._exchange(sum_, row_wise, lane * self.needed.id_bytes(row_wise=row_wise), lane)
        self._work(sum_, row_wise, rows, rows)
        if place.hot:
            synchronized, united = self.needed.synchronized(place.hot), self.needed.united(place.hot)
            sent["hot"] = sum(self._copied(sum_, hot, synchronized, united))
            sum_.announce(1)  # hot rows have a block of their own
        return sent

    def _prefetched(self, place: Place) -> float:
        """Return the share of exact rows to send that the step before does not change."""
        forward, rows = self.table.forward, self.needed.distinct - self.needed.hot(place.hot)
        travels = place.send == "rows" and place.sharding != "replicated" and rows > 0
        exact = forward.ratio == 1 or forward.exact or forward.lossless
        return self.needed.unchanged(place.hot) / rows if travels and exact else 0.0

    def _pooled(self, sum_: _Sum, kind: Place) -> dict[str, float]:
        """Send one vector for every sample from each rank that has rows of the table."""
        row_wise, lookups = kind.sharding == "row", self.needed.lookups
        sent = self._exchange(sum_, row_wise, self.needed.pooled_bytes(row_wise=row_wise), self._samples)
        self._work(sum_, row_wise, lookups, lookups)
        return sent

    def _copied(self, sum_: _Sum, needed: float, sent: float, united: float) -> tuple[float, float]:
        """Send gradients of copied rows to every other rank, or to owners, who send sums."""
        backward, ranks = self.table.backward, self.ranks
        id_bytes, updated = self.needed.id_bytes(row_wise=owners_sum(ranks)), ranks * sent
        lane, id_lane = sent / backward.ratio, sent * id_bytes
        coded = (ranks - 1) * sent * self._codec_s(backward)
        if owners_sum(ranks):
            lane, updated = (sent + united) / (ranks * backward.ratio), united
            id_lane = (sent * id_bytes + united * self.needed.sum_id_bytes) / ranks
            coded = sent * self._codec_s(backward) + united * self._decode_s(backward)
            coded += united / ranks * self._encode_s(backward)
        elif not backward.lossless:  # a rank gives its own copies what the others decode
            coded += sent * self._codec_s(backward)
        ids = sum_.spread(Resource.IDS_OUT, id_lane)
        vectors = sum_.spread(Resource.BACKWARD_OUT, lane * self._vector)
        speeds = self._speeds
        sum_.even[Resource.CPU] += coded + 1e-9 * (needed * speeds.gather_ns + updated * speeds.update_ns)
        return ids, vectors

    def _exchange(self, sum_: _Sum, row_wise: bool, ids: float, vectors: float) -> dict[str, float]:
        """Send ids there, vectors back, and their gradients there again; per pair of ranks."""
        forward, backward = self.table.forward, self.table.backward
        raw = vectors * self._vector
        if row_wise:
            sum_.even[Resource.CPU] += (
                (self.ranks - 1) * vectors * (self._codec_s(forward) + self._codec_s(backward))
            )
            return {
                "ids": sum_.spread(Resource.IDS_OUT, ids),
                "forward": sum_.spread(Resource.FORWARD_OUT, raw / forward.ratio),
                "backward": sum_.spread(Resource.BACKWARD_OUT, raw / backward.ratio),
            }
        many = vectors * (self.ranks - 1)
        sum_.owner[Resource.CPU] += many * (self._encode_s(forward) + self._decode_s(backward))
        sum_.other[Resource.CPU] += vectors * (self._decode_s(forward) + self._encode_s(backward))
        return {
            "ids": sum_.gather(Resource.IDS_OUT, ids),
            "forward": sum_.gather(Resource.FORWARD_OUT, raw / forward.ratio, away=True),
            "backward": sum_.gather(Resource.BACKWARD_OUT, raw / backward.ratio),
        }

    def _work(self, sum_: _Sum, row_wise: bool, gathered: float, updated: float) -> None:
        """Add work on rows that all ranks together ask a rank for, given per rank that asks."""
        seconds = 1e-9 * (gathered * self._speeds.gather_ns + updated * self._speeds.update_ns)
        if row_wise:
            sum_.even[Resource.CPU] += seconds
        else:
            sum_.owner[Resource.CPU] += self.ranks * seconds

    def _keep(self, sum_: _Sum, place: Place) -> None:
        """Add memory; where that is a file, also what a step reads of it and writes back."""
        row_wise, size = place.sharding == "row", self.row_bytes
        kept = math.ceil(self.table.rows / self.ranks) if row_wise else self.table.rows
        where = sum_.owner if place.sharding == "table" else sum_.even
        where[Resource.FILE_SPACE if place.cold else Resource.RAM] += kept * size
        sum_.even[Resource.RAM] += place.hot * size
        if place.cold:
            owners = self.ranks if row_wise else 1
            where[Resource.RAM] += place.warm / owners * size
            where[Resource.FILES] += 2 * self.needed.touched(place.hot + place.warm) / owners * size

    def _encode_s(self, coding: RowCoding) -> float:
        """Return seconds to encode one vector."""
        return 0.0 if coding.ratio == 1 else self._vector / (1e9 * self._speeds.encode_gb_s)

    def _decode_s(self, coding: RowCoding) -> float:
        return 0.0 if coding.ratio == 1 else self._vector / (1e9 * self._speeds.decode_gb_s)

    def _codec_s(self, coding: RowCoding) -> float:
        return self._encode_s(coding) + self._decode_s(coding)
