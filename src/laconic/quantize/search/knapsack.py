"""One option for each part of a model, at the least cost within a budget of harm: solved to the end.

The multiple-choice knapsack as a mixed-integer program for HiGHS::

    minimize   sum cost[i, o] x[i, o]
    subject to sum harm[i, o] x[i, o] <= budget,   sum_o x[i, o] = 1 for each part i,   x in {0, 1}

``adapt.allocate`` solves the same greedily and is within one step of the best. Here that step may be the largest
table's, a third of the model; with some dozens of parts the best itself takes milliseconds.
Negative harm is noise and counts as none.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from laconic.errors import ConfigError, PlanError
from laconic.plan.solve.silent_solver import silent_stdout

__all__ = ["Allocation", "Option", "solve"]

_SLACK = 1e-5  # of the budget that is kept back: HiGHS holds constraints to 1e-6 of their scale
_COST = 1e4  # what all costs are scaled to: HiGHS ends when it is within 1e-6 of the best
_MOST_S = 20.0


@dataclass(frozen=True, slots=True)
class Option:
    """One way to store or compute a part."""

    cost: float
    harm: float


@dataclass(frozen=True, slots=True)
class Allocation:
    """The option chosen for each part, and the totals."""

    chosen: tuple[int, ...]
    cost: float
    harm: float
    """Negative ones counted as 0; never above the budget."""

    lower_bound: float
    """No choice within the budget, but a hundred-thousandth of it, costs less."""


def solve(parts: Sequence[Sequence[Option]], budget: float) -> Allocation:
    """Choose an option of each part; ``PlanError`` where even the least harmful ones exceed the budget.

    Options of infinite cost or harm are not taken.
    """
    from scipy.optimize import Bounds, LinearConstraint, milp  # noqa: PLC0415 -- optional
    from scipy.sparse import csr_array  # noqa: PLC0415

    if not 0 <= budget < math.inf:
        raise ConfigError(f"quantize: expected a budget of 0 or more, got {budget!r}")
    usable = [(i, o, part[o]) for i, part in enumerate(parts) for o in _frontier(part)]
    _check_least(parts, usable, budget)
    part_X = np.array([i for i, _, _ in usable])
    cost_X = np.array([option.cost for _, _, option in usable])
    harm_X = np.array([max(option.harm, 0.0) for _, _, option in usable])
    scaled_X = harm_X / budget if budget else np.where(harm_X > 0, 2.0, 0.0)
    kept_X = scaled_X <= 1.0  # more than the whole budget: never, and a better-scaled program without
    scale = _COST / (float(np.abs(cost_X).sum()) or 1.0)
    one = csr_array((np.ones(len(part_X)), (part_X, np.arange(len(part_X)))), shape=(len(parts), len(part_X)))
    with silent_stdout():
        answer = milp(
            c=cost_X * scale,
            constraints=[
                LinearConstraint(one, 1, 1),
                LinearConstraint(scaled_X * kept_X, -np.inf, 1 - _SLACK),
            ],
            integrality=np.ones(len(part_X)),
            bounds=Bounds(0, kept_X.astype(float)),
            options={"mip_rel_gap": 0.0, "time_limit": _MOST_S},
        )
    if answer.x is None:  # only what was kept back of the budget can be missing
        raise PlanError(_too_little(parts, usable, budget))
    chosen = {i: o for (i, o, _), x in zip(usable, answer.x, strict=True) if x > 0.5}
    picked = [parts[i][chosen[i]] for i in range(len(parts))]
    return Allocation(
        chosen=tuple(chosen[i] for i in range(len(parts))),
        cost=math.fsum(option.cost for option in picked),
        harm=math.fsum(max(option.harm, 0.0) for option in picked),
        lower_bound=float(answer.mip_dual_bound) / scale,
    )


def _frontier(part: Sequence[Option]) -> list[int]:
    """Finite options that no other beats or equals, by rising harm."""
    finite = [o for o, option in enumerate(part) if math.isfinite(option.cost + option.harm)]
    frontier: list[int] = []
    for o in sorted(finite, key=lambda o: (max(part[o].harm, 0.0), part[o].cost)):
        if not frontier or part[o].cost < part[frontier[-1]].cost:
            frontier.append(o)
    return frontier


def _check_least(
    parts: Sequence[Sequence[Option]], usable: Sequence[tuple[int, int, Option]], budget: float
) -> None:
    for i in range(len(parts)):
        if not any(part == i for part, _, _ in usable):
            raise ConfigError(f"quantize: part {i} has no option of finite cost and harm")
    if _least(parts, usable) > budget:
        raise PlanError(_too_little(parts, usable, budget))


def _least(parts: Sequence[Sequence[Option]], usable: Sequence[tuple[int, int, Option]]) -> float:
    harms: list[list[float]] = [[] for _ in parts]
    for i, _, option in usable:
        harms[i].append(max(option.harm, 0.0))
    return math.fsum(map(min, harms))


def _too_little(
    parts: Sequence[Sequence[Option]], usable: Sequence[tuple[int, int, Option]], budget: float
) -> str:
    return (
        f"quantize: expected a budget of at least {_least(parts, usable):.3g}, the least harm possible, "
        f"got {budget:.3g}; raise it or offer options that harm less"
    )
