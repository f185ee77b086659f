"""Better places, one table or two at a time, until none is found: the cost model judges.

Memory comes first: of two plans the one that lacks less of it is better, then the one with the
shorter step, then the one that sends less. So a start that does not fit is repaired, if such moves
can do it.

The simplest plan that takes hardly longer is better still: predictions are expectations. Whole
tables that balance on average do not in every step; hot rows go out of fashion. Rows dealt to all
ranks have neither problem. Tables that memory has room for need no files. So what gains next to
nothing is undone. Shape legend: ``K`` resources, ``N`` ranks, ``A`` alternatives.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from laconic.cost.load import Place, Resource
from laconic.plan.solve.problem import Problem

__all__ = [
    "SLACK",
    "Score",
    "best_of_kind",
    "improve",
    "score",
    "simplify",
    "spread_owners",
    "with_best_owner",
]

Floats = NDArray[np.float64]
Score = tuple[float, float]
"""Bytes of memory that are missing, and seconds; the smaller the better."""
SLACK = 1.03
"""A step may get longer by this factor, in all: less than predictions err by."""
_MOST_SWEEPS = 12
_TIE = 1e-4  # weight of what is hidden, as in table_program
_WORTH = 1 - 1e-7  # a gain below that is rounding


def score(problem: Problem, choices: Sequence[Place]) -> Score:
    """Say how good a plan is."""
    return _score(problem, problem.total_KN(choices))


def improve(problem: Problem, start: Sequence[Place]) -> list[Place]:
    """Move and swap tables while that helps."""
    choices = list(start)
    for _ in range(_MOST_SWEEPS):
        moved = [_move(problem, choices, t) for t in range(len(choices))]
        if not (_swap_owners(problem, choices) or any(moved)):
            break
    return choices


def spread_owners(problem: Problem, choices: Sequence[Place], *, within_groups: bool = False) -> list[Place]:
    """Give whole tables owners, the heaviest first; or only move them within their groups."""
    group_N = problem.cluster.group_N
    spread = list(choices)
    whole = {t for t, choice in enumerate(choices) if choice.owner is not None}
    rest = [problem.spread_KN(t, choice) for t, choice in enumerate(choices) if t not in whole]
    base_KN = np.sum([problem.headers_KN, *rest], axis=0)
    for t in sorted(whole, key=lambda t: -float(problem.load(t, choices[t]).owner_K @ _weights_K(problem))):
        owners = problem.owners(choices[t].kind)
        if within_groups:
            owners = np.flatnonzero(group_N == group_N[choices[t].owner])
        spread[t], _ = with_best_owner(problem, base_KN, t, choices[t], owners)
        base_KN = base_KN + problem.spread_KN(t, spread[t])
    return spread


def with_best_owner(
    problem: Problem, base_KN: Floats, t: int, choice: Place, owners: NDArray[np.int64]
) -> tuple[Place, Score]:
    """Find who should have a whole table on top of ``base_KN``, and how good that is."""
    load = problem.load(t, choice)
    alternatives = np.arange(len(owners))
    total_AKN = np.repeat((base_KN + (load.even_K + load.other_K)[:, None])[None], len(owners), axis=0)
    total_AKN[alternatives, :, owners] += load.star_K
    short_A, seconds_A = _scores(problem, total_AKN)
    # of equals the one with least to do: the next table may need the room
    busy_A = total_AKN[alternatives, :, owners] @ _weights_K(problem)
    best = int(np.lexsort((busy_A, seconds_A, short_A))[0])
    return replace(choice, owner=int(owners[best])), (float(short_A[best]), float(seconds_A[best]))


def best_of_kind(problem: Problem, base_KN: Floats, t: int, kind: Place, hot: int) -> tuple[Place, Score]:
    """Find a table's best place of one kind on top of ``base_KN``.

    Numbers of hot rows around ``hot``, and none, are tried. A cold one gets as many warm rows as
    there is room for.
    """
    found: list[tuple[Place, Score]] = []
    for count in _hot_counts(problem.cuts(t), hot) if kind.can_have_hot_rows else (0,):
        choice = replace(kind, hot=count)
        if kind.cold:
            choice = replace(choice, warm=_fitting(problem, base_KN, t, choice))
        if kind.sharding == "table":
            found.append(with_best_owner(problem, base_KN, t, choice, problem.owners(kind)))
        else:
            found.append((choice, _score(problem, base_KN + problem.spread_KN(t, choice))))
    return min(found, key=lambda pair: pair[1])


def _fitting(problem: Problem, base_KN: Floats, t: int, choice: Place) -> int:
    """Warm rows that memory has room for; a whole table goes to the rank with most of it."""
    size = problem.workload.row_bytes * (1 + 1e-12)  # rounding must not make room
    room_N = problem.cluster.memory_N - (base_KN + problem.spread_KN(t, choice))[Resource.RAM]
    if choice.sharding == "table":
        return problem.warm_rows(t, choice, float(room_N[problem.owners(choice.kind)].max()) / size)
    return problem.warm_rows(t, choice, problem.ranks * float(room_N.min()) / size)


def _move(problem: Problem, choices: list[Place], t: int) -> bool:
    """Put one table where it is best, all others being where they are."""
    total_KN = problem.total_KN(choices)
    base_KN = total_KN - problem.spread_KN(t, choices[t])
    now = best = _score(problem, total_KN)
    hot = choices[t].hot
    for kind in problem.kinds:
        placed, found = best_of_kind(problem, base_KN, t, kind, hot)
        if _better(found, best):
            best, choices[t] = found, placed
    return best < now


def _hot_counts(cuts: Sequence[int], hot: int) -> list[int]:
    at = int(np.searchsorted(cuts, hot))
    near = (cuts[i] for i in (at - 4, at - 2, at - 1, at, at + 1, at + 2, at + 4) if 0 <= i < len(cuts))
    return sorted({0, hot, *near})


def _swap_owners(problem: Problem, choices: list[Place]) -> bool:
    """Exchange owners of two whole tables, wherever that is better."""
    swapped = False
    files_N = problem.timeline.file_space_N > 0
    total_KN, now = problem.total_KN(choices), score(problem, choices)
    for a, b in combinations(range(len(choices)), 2):
        left, right = choices[a], choices[b]
        if left.owner is None or right.owner is None or left.owner == right.owner:
            continue
        if (left.cold or right.cold) and not (files_N[left.owner] and files_N[right.owner]):
            continue
        other = total_KN.copy()
        difference_K = problem.load(b, right).star_K - problem.load(a, left).star_K
        other[:, left.owner] += difference_K
        other[:, right.owner] -= difference_K
        found = _score(problem, other)
        if _better(found, now):
            choices[a], choices[b] = replace(left, owner=right.owner), replace(right, owner=left.owner)
            total_KN, now, swapped = other, found, True
    return swapped


def _better(found: Score, than: Score) -> bool:
    return found[0] < than[0] * _WORTH or (found[0] <= than[0] and found[1] < than[1] * _WORTH)


def _score(problem: Problem, total_KN: Floats) -> Score:
    short, seconds = _scores(problem, total_KN)
    return float(short), float(seconds)


def _scores(problem: Problem, total_KN: Floats) -> tuple[Any, Any]:
    seconds, wire = problem.timeline.seconds(total_KN)
    return problem.timeline.shortage(total_KN), seconds + _TIE * wire


def _weights_K(problem: Problem) -> Floats:
    """Seconds, and shares of memory, behind a unit of each resource."""
    weights: Floats = 1 / problem.timeline.rate_KN.max(axis=1)
    return weights


def simplify(problem: Problem, choices: Sequence[Place]) -> list[Place]:
    """Deal tables by rows, forget hot rows, and leave files, as long as that is free."""
    short, seconds = score(problem, choices)
    limit = (short, seconds * SLACK)
    simple = list(choices)
    for simpler in _SIMPLER:
        plan = [_rounded(problem, t, simpler(choice)) for t, choice in enumerate(simple)]
        if score(problem, plan) <= limit:
            simple = plan
            break
    for t, choice in enumerate(simple):
        for simpler in _SIMPLER:
            plan = [*simple[:t], _rounded(problem, t, simpler(choice)), *simple[t + 1 :]]
            if score(problem, plan) <= limit:
                simple = plan
                break
    for t in sorted(range(len(simple)), key=lambda t: problem.workload.tables[t].rows):
        plan = [*simple[:t], _in_memory(simple[t]), *simple[t + 1 :]]
        if score(problem, plan) <= limit:
            simple = plan
    return simple


def _rounded(problem: Problem, t: int, choice: Place) -> Place:
    return replace(choice, warm=problem.warm_rows(t, choice, choice.warm))


def _dealt(choice: Place) -> Place:
    """Deal rows to all ranks; copies and pooled vectors stay what they are."""
    return replace(choice, sharding="row", owner=None)


def _without_hot(choice: Place) -> Place:
    """Forget copies; of a cold table the same rows stay in memory."""
    return replace(choice, hot=0, warm=choice.warm + choice.hot if choice.cold else 0)


def _in_memory(choice: Place) -> Place:
    return replace(choice, cold=False, warm=0)


_SIMPLER: tuple[Callable[[Place], Place], ...] = (
    lambda choice: _without_hot(_dealt(choice)),
    _without_hot,
    _dealt,
)
"""The simplest first."""
