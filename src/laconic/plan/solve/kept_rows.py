"""Rows of a cold table in the order in which memory should have them, and what each saves.

The k most frequent rows, if memory has them, save a step S(k) reads of the file, and as many
writes. S is concave: the rarer a row, the less it saves. A linear program needs it as segments.
These are those of some of its tangents, which meet S where they touch it and are above it
elsewhere, so that what the program finds is a bound for every number of rows.

Memory that places leave free goes to these rows. Whatever is in memory is not read from files, so
none of it should be left. A row takes as much memory for the reads it saves wherever it is: all
tables compete, the most frequent rows first, as long as the ranks that own them have room. Shape
legend: ``S`` segments, ``N`` ranks.
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
    """Rows of each segment, ``most`` in all, and reads that a row saves; frequent rows first.

    At most so many ``tangents``. Half of them touch S where numbers of rows differ by a constant
    factor, for steep laws, and half by a constant number, for flat ones.
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


def share_memory(problem: Problem, choices: Sequence[Place]) -> list[Place]:
    """Choose numbers of warm rows anew; or return the choices, if they are better."""
    bare = [replace(choice, warm=0) for choice in choices]
    pieces = [piece for t, choice in enumerate(bare) if choice.cold for piece in _pieces(problem, t, choice)]
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
        replace(choice, warm=problem.warm_rows(t, choice, warm_T[t] * _SURELY)) if choice.cold else choice
        for t, choice in enumerate(bare)
    ]
    return min([filled, list(choices)], key=lambda plan: score(problem, plan))


def _pieces(problem: Problem, t: int, choice: Place) -> list[tuple[float, int, float]]:
    """Segments of rows behind the hot ones: what a row saves, negative, table, number of rows."""
    found, hot = [], float(choice.hot)
    rows_S, saved_S = kept_segments(problem.costs[t].needed, problem.workload.tables[t].candidates, _TANGENTS)
    for rows, saved in zip(rows_S.tolist(), saved_S.tolist(), strict=True):
        left = max(rows - hot, 0.0)
        hot -= rows - left
        found.append((-saved, t, left))
    return found
