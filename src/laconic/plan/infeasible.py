"""Why tables do not fit, and what would make them."""

from __future__ import annotations

import math

import numpy as np

from laconic.errors import PlanError
from laconic.plan.solve.problem import Problem

__all__ = ["does_not_fit", "size_text"]


def does_not_fit(problem: Problem) -> PlanError:
    """Return the error that says how many bytes are short, because of which table, and what would help."""
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
    """Sum up shares of the largest tables until the rest fits the smallest memory: what a tier must have."""
    workload, ranks = problem.workload, problem.ranks
    shares = sorted(math.ceil(table.rows / ranks) * workload.row_bytes for table in workload.tables)
    memory, files = float(problem.cluster.memory_N.min()), 0
    while shares and sum(shares) > memory:
        files += shares.pop()
    return files


def size_text(nbytes: float) -> str:
    """In decimal units, three significant digits: 12.4 GB."""
    for unit, factor in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if nbytes >= factor:
            return f"{nbytes / factor:.3g} {unit}"
    return f"{nbytes:.0f} bytes"


def _gb(nbytes: float) -> str:
    """Round up to two digits, so that it suffices."""
    if nbytes <= 0:
        return "0"
    value = nbytes / 1e9
    unit = 10.0 ** (math.floor(math.log10(value)) - 1)
    return f"{math.ceil(value / unit) * unit:.2g}"
