"""From measurements to a choice for every part, with its reason; and the curve of what every budget would buy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from laconic.plan.solve.knapsack import Option, solve
from laconic.quantize.formats.recipe import Recipe
from laconic.quantize.search.candidates import recipe_of
from laconic.quantize.search.sensitivity import Measurement

__all__ = ["Chosen", "Objective", "ParetoPoint", "choose", "pareto"]

Objective = Literal["size", "latency"]

_POINTS = 25
_OTHER = 0.03  # weight of the objective that was not asked for


@dataclass(frozen=True, slots=True)
class Chosen:
    """A choice for every part, and what it is predicted to take and to harm."""

    parts: tuple[Measurement, ...]
    budget: float
    gap: float
    """Share by which the best choice within the budget may be better; 0 where the solver came to its end."""

    @property
    def recipe(self) -> Recipe:
        """All choices by name."""
        return recipe_of([measurement.candidate for measurement in self.parts])

    @property
    def bytes(self) -> int:
        """Of all parts."""
        return sum(measurement.bytes for measurement in self.parts)

    @property
    def us(self) -> float:
        """Of a batch, beside fp32."""
        return sum(measurement.us for measurement in self.parts)

    @property
    def harm(self) -> float:
        """As if harms added up."""
        return sum(max(measurement.harm.estimate, 0.0) for measurement in self.parts)


@dataclass(frozen=True, slots=True)
class ParetoPoint:
    """What a budget buys."""

    objective: Objective
    budget: float
    bytes: int
    us: float
    """Beside fp32."""
    harm: float


def choose(parts: Sequence[Sequence[Measurement]], budget: float, objective: Objective) -> Chosen:
    """Choose a candidate of every part, so that all together take least and harm no more than the budget.

    The other objective counts for a thirtieth: nobody wants a model that is a kilobyte smaller and takes a layer's
    time longer, or one whose tables have formats that differ in the noise of a clock.
    """
    costs = _costs(parts, objective)
    options = [
        [Option(cost, m.harm.estimate) for cost, m in zip(of_part, part, strict=True)]
        for of_part, part in zip(costs, parts, strict=True)
    ]
    found = solve(options, budget)
    picked = tuple(part[o] for part, o in zip(parts, found.chosen, strict=True))
    gap = 1 - found.lower_bound / found.cost if found.cost > 0 else 0.0
    return Chosen(picked, budget, gap if gap > 1e-6 else 0.0)


def _costs(parts: Sequence[Sequence[Measurement]], objective: Objective) -> list[list[float]]:
    """Bytes as a share of the model in fp32, time as a share of all that choices can make a difference of."""
    exact = sum(part[0].bytes for part in parts) or 1
    fastest = [min(m.us for m in part) for part in parts]
    spread = sum(max(m.us for m in part) for part in parts) - sum(fastest) or 1.0
    size, time = (1.0, _OTHER) if objective == "size" else (_OTHER, 1.0)
    return [
        [size * m.bytes / exact + time * (m.us - least) / spread for m in part]
        for part, least in zip(parts, fastest, strict=True)
    ]


def pareto(parts: Sequence[Sequence[Measurement]], budget: float) -> list[ParetoPoint]:
    """Say what budgets from a hundredth of this one to a hundred times buy, for either objective."""
    points: list[ParetoPoint] = []
    for objective in ("size", "latency"):
        seen: set[tuple[int, float]] = set()
        for k in range(_POINTS):
            within = budget * 10 ** (4 * k / (_POINTS - 1) - 2)
            chosen = choose(parts, within, objective)
            if (chosen.bytes, chosen.us) not in seen:
                points.append(ParetoPoint(objective, within, chosen.bytes, chosen.us, chosen.harm))
                seen.add((chosen.bytes, chosen.us))
    return points
