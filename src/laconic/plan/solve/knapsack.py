"""One option for each item, a table or a layer, at the least cost within a budget of harm.

The multiple-choice knapsack as a mixed-integer program for HiGHS::

    minimize   sum cost[i, o] x[i, o]
    subject to sum harm[i, o] x[i, o] <= budget,   sum_o x[i, o] = 1 for each item i,   x in {0, 1}

A greedy choice is within one step of the best, but that step may be the largest table's, a third of
the model. With some dozens of items the best itself takes milliseconds. Negative harm is noise and
counts as none.

HiGHS holds constraints to a millionth. A choice that exceeds the budget by that is solved for again
with a little less budget; the bound is that of the first program, so it covers everything within
the budget.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from laconic.errors import ConfigError, PlanError
from laconic.plan.solve.highs import Milp

__all__ = ["Allocation", "Option", "solve"]

_SLACK = 1e-5  # of the budget that is kept back at the second attempt
_COST = 1e4  # what all costs are scaled to: HiGHS ends when it is within 1e-6 of the best
_LEAST = 1e-290  # costs below this are as good as none
_MOST_S = 20.0


@dataclass(frozen=True, slots=True)
class Option:
    """Cost and harm of one precision of an item."""

    cost: float

    harm: float
    """Measured harm; below 0 it is noise and counts as 0."""


@dataclass(frozen=True, slots=True)
class Allocation:
    """The option chosen for each item, and the totals."""

    chosen: tuple[int, ...]
    cost: float
    harm: float
    """Sum of harms, never above the budget; negative ones count as 0."""

    lower_bound: float
    """Lower bound of the cost: no choice within the budget costs less."""


def solve(items: Sequence[Sequence[Option]], budget: float) -> Allocation:
    """Choose an option of each item; ``PlanError`` where none are within the budget.

    Options of infinite cost or harm are not taken. Of equal options of an item the first is.
    """
    if not 0 <= budget < math.inf:
        raise ConfigError(f"knapsack: expected a budget of 0 or more, got {budget!r}")
    if not items:
        return Allocation((), 0.0, 0.0, 0.0)
    frontiers = [_frontier(i, item) for i, item in enumerate(items)]
    least = math.fsum(max(item[f[0]].harm, 0.0) for item, f in zip(items, frontiers, strict=True))
    if least > budget:
        raise PlanError(
            f"knapsack: expected a budget of at least {least:.3g}, the least harm possible, "
            f"got {budget:.3g}; raise it or offer options that harm less"
        )
    program = _Knapsack(items, frontiers, budget)
    found = program.solve(1.0)
    assert found is not None, "the least harmful options are within the budget"
    chosen, lower_bound = found
    if program.harm(chosen) > budget:
        again = program.solve(1 - _SLACK)
        # nothing else is within the budget where only what was kept back of it is missing
        chosen = tuple(f[0] for f in frontiers) if again is None else again[0]
    cost = math.fsum(item[o].cost for item, o in zip(items, chosen, strict=True))
    return Allocation(chosen, cost, program.harm(chosen), min(lower_bound, cost))


def _frontier(i: int, item: Sequence[Option]) -> list[int]:
    """Finite options that no other beats or equals, by rising harm."""
    finite = [o for o, option in enumerate(item) if math.isfinite(option.cost + option.harm)]
    if not finite:
        raise ConfigError(f"knapsack: item {i} has no option of finite cost and harm")
    frontier: list[int] = []
    for o in sorted(finite, key=lambda o: (max(item[o].harm, 0.0), item[o].cost)):
        if not frontier or item[o].cost < item[frontier[-1]].cost:
            frontier.append(o)
    return frontier


class _Knapsack:
    """The program over options that no other beats. Shape legend: ``X`` options of all items."""

    def __init__(
        self, items: Sequence[Sequence[Option]], frontiers: Sequence[Sequence[int]], budget: float
    ) -> None:
        self._parts = items
        # what exceeds the whole budget is never taken, and without it the program is better scaled
        self._option_X = [
            (i, o) for i, frontier in enumerate(frontiers) for o in frontier if items[i][o].harm <= budget
        ]
        self._cost_X = np.array([items[i][o].cost for i, o in self._option_X])
        self._scale = _COST / max(float(np.abs(self._cost_X).sum()), _LEAST)
        harm_X = np.array([max(items[i][o].harm, 0.0) for i, o in self._option_X])
        self._share_X: NDArray[Any] = harm_X / (budget or 1.0)

    def harm(self, chosen: Sequence[int]) -> float:
        """Return the harm of a choice."""
        return math.fsum(max(item[o].harm, 0.0) for item, o in zip(self._parts, chosen, strict=True))

    def solve(self, share: float) -> tuple[tuple[int, ...], float] | None:
        """Return the best choice within this share of the budget, and the least cost; or None."""
        from scipy.sparse import csr_array, vstack  # noqa: PLC0415 -- optional

        count, one = len(self._option_X), np.ones(len(self._parts))
        places = ([i for i, _ in self._option_X], np.arange(count))
        one_each = csr_array((np.ones(count), places), shape=(len(self._parts), count))
        program = Milp(
            price_X=self._cost_X * self._scale,
            upper_X=np.ones(count),
            matrix=vstack([one_each, csr_array(self._share_X[None])]),
            low_Y=np.append(one, -np.inf),
            high_Y=np.append(one, share),
        )
        answer = program.solve(np.ones(count, np.bool_), gap=0.0, time_limit_s=_MOST_S)
        if answer is None:
            return None
        chosen = {i: o for (i, o), x in zip(self._option_X, answer[0], strict=True) if x > 0.5}
        return tuple(chosen[i] for i in range(len(self._parts))), answer[1] / self._scale
