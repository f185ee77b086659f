"""Improves places, one table or two at a time, until the cost model finds nothing better.

Memory comes first: of two plans the one that lacks less of it is better, then the one with the
shorter step, then the one that sends less. So a start that does not fit is repaired, if such moves
can do it.

The simplest plan that takes hardly longer is better still, because predictions are expectations.
Table-wise tables that balance on average do not balance in every step, and hot rows change with
time. Row-wise tables have neither problem, and tables that fit into memory need no files. So what
gains next to nothing is undone. Shape legend: ``K`` resources, ``N`` ranks, ``A`` alternatives.
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
"""Bytes of memory that are missing, and seconds of a step; the smaller the better."""
SLACK = 1.03
"""Factor by which simplifying may make a step longer in all. Predictions err by more."""
_MOST_SWEEPS = 12
_TIE = 1e-4  # weight of what is hidden, as in table_program
_WORTH = 1 - 1e-7  # a gain below that is rounding


def score(problem: Problem, places: Sequence[Place]) -> Score:
    """Return how good a plan is."""
    return _score(problem, problem.total_KN(places))


def improve(problem: Problem, start: Sequence[Place]) -> list[Place]:
    """Move and swap tables while that helps."""
    places = list(start)
    for _ in range(_MOST_SWEEPS):
        moved = [_move(problem, places, t) for t in range(len(places))]
        if not (_swap_owners(problem, places) or any(moved)):
            break
    return places


def spread_owners(problem: Problem, places: Sequence[Place], *, within_groups: bool = False) -> list[Place]:
    """Give table-wise tables owners, the heaviest first, of all ranks or of their groups."""
    group_N = problem.cluster.group_N
    spread = list(places)
    whole = {t for t, place in enumerate(places) if place.owner is not None}
    rest = [problem.spread_KN(t, place) for t, place in enumerate(places) if t not in whole]
    base_KN = np.sum([problem.headers_KN, *rest], axis=0)
    for t in sorted(whole, key=lambda t: -float(problem.load(t, places[t]).owner_K @ _weights_K(problem))):
        owners = problem.owners(places[t].kind)
        if within_groups:
            owners = np.flatnonzero(group_N == group_N[places[t].owner])
        spread[t], _ = with_best_owner(problem, base_KN, t, places[t], owners)
        base_KN = base_KN + problem.spread_KN(t, spread[t])
    return spread


def with_best_owner(
    problem: Problem, base_KN: Floats, t: int, place: Place, owners: NDArray[np.int64]
) -> tuple[Place, Score]:
    """Find the best owner of a table-wise table on top of ``base_KN``, and the score."""
    load = problem.load(t, place)
    alternatives = np.arange(len(owners))
    total_AKN = np.repeat((base_KN + (load.all_K + load.others_K)[:, None])[None], len(owners), axis=0)
    total_AKN[alternatives, :, owners] += load.owner_extra_K
    short_A, seconds_A = _scores(problem, total_AKN)
    # of equals the one with least to do: the next table may need the room
    busy_A = total_AKN[alternatives, :, owners] @ _weights_K(problem)
    best = int(np.lexsort((busy_A, seconds_A, short_A))[0])
    return replace(place, owner=int(owners[best])), (float(short_A[best]), float(seconds_A[best]))


def best_of_kind(problem: Problem, base_KN: Floats, t: int, kind: Place, hot: int) -> tuple[Place, Score]:
    """Find a table's best place of one kind on top of ``base_KN``.

    Numbers of hot rows around ``hot``, and none, are tried. A cold table gets as many warm rows as
    fit into memory.
    """
    found: list[tuple[Place, Score]] = []
    for count in _hot_counts(problem.cuts[t], hot) if kind.can_have_hot_rows else (0,):
        place = replace(kind, hot=count)
        if kind.cold:
            place = replace(place, warm=_fitting(problem, base_KN, t, place))
        if kind.sharding == "table":
            found.append(with_best_owner(problem, base_KN, t, place, problem.owners(kind)))
        else:
            found.append((place, _score(problem, base_KN + problem.spread_KN(t, place))))
    return min(found, key=lambda pair: pair[1])


def _fitting(problem: Problem, base_KN: Floats, t: int, place: Place) -> int:
    """Return the number of warm rows that fit; a table-wise table takes the largest memory."""
    size = problem.workload.row_bytes * (1 + 1e-12)  # rounding must not make room
    room_N = problem.cluster.memory_N - (base_KN + problem.spread_KN(t, place))[Resource.RAM]
    if place.sharding == "table":
        return problem.warm_rows(t, place, float(room_N[problem.owners(place.kind)].max()) / size)
    return problem.warm_rows(t, place, problem.ranks * float(room_N.min()) / size)


def _move(problem: Problem, places: list[Place], t: int) -> bool:
    """Put one table where it is best while all others stay where they are."""
    total_KN = problem.total_KN(places)
    base_KN = total_KN - problem.spread_KN(t, places[t])
    now = best = _score(problem, total_KN)
    hot = places[t].hot
    for kind in problem.kinds:
        placed, found = best_of_kind(problem, base_KN, t, kind, hot)
        if _better(found, best):
            best, places[t] = found, placed
    return best < now


def _hot_counts(cuts: Sequence[int], hot: int) -> list[int]:
    at = int(np.searchsorted(cuts, hot))
    near = (cuts[i] for i in (at - 4, at - 2, at - 1, at, at + 1, at + 2, at + 4) if 0 <= i < len(cuts))
    return sorted({0, hot, *near})


def _swap_owners(problem: Problem, places: list[Place]) -> bool:
    """Exchange owners of two table-wise tables, wherever that is better."""
    swapped = False
    files_N = problem.timeline.file_space_N > 0
    total_KN, now = problem.total_KN(places), score(problem, places)
    for a, b in combinations(range(len(places)), 2):
        left, right = places[a], places[b]
        if left.owner is None or right.owner is None or left.owner == right.owner:
            continue
        if (left.cold or right.cold) and not (files_N[left.owner] and files_N[right.owner]):
            continue
        other = total_KN.copy()
        difference_K = problem.load(b, right).owner_extra_K - problem.load(a, left).owner_extra_K
        other[:, left.owner] += difference_K
        other[:, right.owner] -= difference_K
        found = _score(problem, other)
        if _better(found, now):
            places[a], places[b] = replace(left, owner=right.owner), replace(right, owner=left.owner)
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
    """Return seconds, or shares of memory, behind a unit of each resource."""
    weights: Floats = 1 / problem.timeline.capacity_KN.max(axis=1)
    return weights


def simplify(problem: Problem, places: Sequence[Place]) -> list[Place]:
    """Make tables row-wise, drop hot rows and leave files, as long as that costs nothing."""
    short, seconds = score(problem, places)
    limit = (short, seconds * SLACK)
    simple = list(places)
    for simpler in _SIMPLER:
        plan = [_rounded(problem, t, simpler(place)) for t, place in enumerate(simple)]
        if score(problem, plan) <= limit:
            simple = plan
            break
    for t, place in enumerate(simple):
        for simpler in _SIMPLER:
            plan = [*simple[:t], _rounded(problem, t, simpler(place)), *simple[t + 1 :]]
            if score(problem, plan) <= limit:
                simple = plan
                break
    for t in sorted(range(len(simple)), key=lambda t: problem.workload.tables[t].rows):
        plan = [*simple[:t], _in_memory(simple[t]), *simple[t + 1 :]]
        if score(problem, plan) <= limit:
            simple = plan
    return simple


def _rounded(problem: Problem, t: int, place: Place) -> Place:
    return replace(place, warm=problem.warm_rows(t, place, place.warm))


def _row_wise(place: Place) -> Place:
    """Divide rows among all ranks; copies and pooled vectors stay what they are."""
    return replace(place, sharding="row", owner=None)


def _without_hot(place: Place) -> Place:
    """Drop copies; rows of a cold table stay in memory as warm ones."""
    return replace(place, hot=0, warm=place.warm + place.hot if place.cold else 0)


def _in_memory(place: Place) -> Place:
    return replace(place, cold=False, warm=0)


_SIMPLER: tuple[Callable[[Place], Place], ...] = (
    lambda place: _without_hot(_row_wise(place)),
    _without_hot,
    _row_wise,
)
"""Ways to simplify a place, the simplest result first."""
