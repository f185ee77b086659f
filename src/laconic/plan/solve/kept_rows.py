"""Rows of a cold table in the order in which memory should have them, and what each saves.

The k most frequent rows, if memory has them, save a step S(k) reads of the file, and as many
writes. S is concave: the rarer a row, the less it saves. A linear program needs it as segments.
These are those of some of its tangents, which meet S where they touch it and are above it
elsewhere, so that what the program finds is a bound for every number of rows.

Memory that places leave free goes to these rows. Rows in memory are not read from files, so no
memory should be left. Rows of all tables compete for it, the most frequent first, as long as the
ranks that own them have memory. Shape legend: ``S`` segments, ``N`` ranks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from laconic.cost.load import Place, Resource
from laconic.cost.needed_rows import NeededRows
from laconic.plan.solve.improve import score
from laconic.plan.solve.problem import Problem

__all__ = ["kept_segments", "share_memory"]

Floats = NDArray[np.float64]
_TANGENTS = 128
_SURELY = 1 - 1e-12  # rows that fit when rounding says that they just do
_FLATTER = 1e-9  # slopes that differ by less of the steepest one are the same


def kept_segments(needed: NeededRows, most: int, tangents: int) -> tuple[Floats, Floats]:
    """Return rows of each segment, ``most`` in all, and reads that a row saves; hot rows first.

    There are at most ``tangents`` segments. Half of the tangents touch S at numbers of rows that
    differ by a constant factor, for steep laws, and half by a constant number, for flat ones.
    """
    if most < 1:
        return np.empty(0), np.empty(0)
    half = tangents // 2
    at_S = np.unique(np.rint([*np.geomspace(1, most, half), *np.linspace(1, most, half)])) - 1
    read_S, next_S = (np.array([needed.touched(k) for k in rows.tolist()]) for rows in (at_S, at_S + 1))
    slope_S = read_S - next_S
    some = np.diff(slope_S, prepend=np.inf) < -_FLATTER * slope_S[0]
    at_S, slope_S, saved_S = at_S[some], slope_S[some], (read_S[0] - read_S)[some]
    begin_S = saved_S - slope_S * at_S  # where tangents leave the axis
    meet = np.clip(-np.diff(begin_S) / np.diff(slope_S), at_S[:-1], at_S[1:])
    return np.diff(np.concatenate([[0.0], meet, [float(most)]])), slope_S


def share_memory(problem: Problem, places: Sequence[Place]) -> list[Place]:
    """Choose numbers of warm rows anew, or return the places as they are if they are better."""
    bare = [replace(place, warm=0) for place in places]
    pieces = [piece for t, place in enumerate(bare) if place.cold for piece in _pieces(problem, t, place)]
    room_N = problem.cluster.memory_N - problem.total_KN(bare)[Resource.RAM]
    size, warm_T = problem.workload.row_bytes, [0.0] * len(bare)
    for _, t, rows in sorted(pieces):
        owner = bare[t].owner
        owners, each = (
            (slice(None), size / problem.ranks) if owner is None else (slice(owner, owner + 1), size)
        )
        fitting = min(rows, max(float(room_N[owners].min()), 0.0) / each)
        room_N[owners] -= fitting * each
        warm_T[t] += fitting
    filled = [
        replace(place, warm=problem.warm_rows(t, place, warm_T[t] * _SURELY)) if place.cold else place
        for t, place in enumerate(bare)
    ]
    return min([filled, list(places)], key=lambda plan: score(problem, plan))


def _pieces(problem: Problem, t: int, place: Place) -> list[tuple[float, int, float]]:
    """Return segments behind the hot rows: negative savings of a row, table, number of rows."""
    found, hot = [], float(place.hot)
    rows_S, saved_S = kept_segments(problem.costs[t].needed, problem.workload.tables[t].candidates, _TANGENTS)
    for rows, saved in zip(rows_S.tolist(), saved_S.tolist(), strict=True):
        left = max(rows - hot, 0.0)
        hot -= rows - left
        found.append((-saved, t, left))
    return found
