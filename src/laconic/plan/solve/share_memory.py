"""Memory that places leave free, for the rows of cold tables that are looked up most.

Whatever is in memory is not read from files, so none of it should be left. A row takes as much memory for the reads it
saves wherever it is: all tables compete, the most frequent rows first, as long as the ranks that own them have room. Shape
legend: ``N`` ranks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from laconic.cost.load import Choice, Resource
from laconic.plan.solve.improve import score
from laconic.plan.solve.kept_rows import kept_segments
from laconic.plan.solve.problem import Problem

__all__ = ["share_memory"]

_TANGENTS = 128
_SURELY = 1 - 1e-12  # rows that fit when rounding says that they just do


def share_memory(problem: Problem, choices: Sequence[Choice]) -> list[Choice]:
    """Choose numbers of warm rows anew, all else being as it is; or return the choices, if they are better."""
    bare = [replace(choice, warm=0) for choice in choices]
    pieces = [
        piece for t, choice in enumerate(bare) if choice.kind.cold for piece in _pieces(problem, t, choice)
    ]
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
        replace(choice, warm=problem.warm_rows(t, choice, warm_T[t] * _SURELY))
        if choice.kind.cold
        else choice
        for t, choice in enumerate(bare)
    ]
    return min([filled, list(choices)], key=lambda plan: score(problem, plan))


def _pieces(problem: Problem, t: int, choice: Choice) -> list[tuple[float, int, float]]:
    """Segments of a table's rows behind its hot ones: what a row saves, negative, the table, and how many rows."""
    found, hot = [], float(choice.hot)
    rows_S, saved_S = kept_segments(problem.costs[t].needed, problem.workload.tables[t].candidates, _TANGENTS)
    for rows, saved in zip(rows_S.tolist(), saved_S.tolist(), strict=True):
        left = max(rows - hot, 0.0)
        hot -= rows - left
        found.append((-saved, t, left))
    return found
