"""Choose a precision for every part from measurements, explain it, and compute the Pareto curve."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from laconic.adapt.harm import Harm
from laconic.numerals import bytes_text, three
from laconic.plan.solve.knapsack import Option, solve
from laconic.quantize.formats.recipe import Recipe
from laconic.quantize.formats.result import (
    HarmFigures,
    Objective,
    ParetoPoint,
    QuantizeCandidate,
    QuantizePart,
)
from laconic.quantize.search.candidates import recipe_of
from laconic.quantize.search.sensitivity import MeasuredCandidate

__all__ = ["Chosen", "choose", "explain_part", "harm_figures", "pareto"]

_POINTS = 25
_OTHER = 0.03  # weight of the objective that was not asked for


@dataclass(frozen=True, slots=True)
class Chosen:
    """A precision for every part, with the predicted size, time and harm."""

    parts: tuple[MeasuredCandidate, ...]
    budget: float
    gap: float
    """Share by which another combination could be better; 0 where the solver proved the optimum."""

    @property
    def recipe(self) -> Recipe:
        """The recipe with these precisions."""
        return recipe_of([measurement.candidate for measurement in self.parts])

    @property
    def bytes(self) -> int:
        """Bytes that all parts take together."""
        return sum(measurement.bytes for measurement in self.parts)

    @property
    def us(self) -> float:
        """Microseconds of a batch beside fp32."""
        return sum(measurement.us for measurement in self.parts)

    @property
    def harm(self) -> float:
        """Predicted harm: the sum of the harms of all parts."""
        return sum(max(measurement.harm.estimate, 0.0) for measurement in self.parts)


def choose(parts: Sequence[Sequence[MeasuredCandidate]], budget: float, objective: Objective) -> Chosen:
    """Choose a candidate for every part, so that all together cost least within the budget.

    The other objective has a weight of 3 %. Without it, a model that is a kilobyte smaller could
    take a layer's time longer, and the noise of a clock could decide the formats of tables.
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


def _costs(parts: Sequence[Sequence[MeasuredCandidate]], objective: Objective) -> list[list[float]]:
    """Add bytes, as a share of the model in fp32, and time, as a share of its possible range."""
    exact = sum(part[0].bytes for part in parts) or 1
    fastest = [min(m.us for m in part) for part in parts]
    spread = sum(max(m.us for m in part) for part in parts) - sum(fastest) or 1.0
    size, time = (1.0, _OTHER) if objective == "size" else (_OTHER, 1.0)
    return [
        [size * m.bytes / exact + time * (m.us - least) / spread for m in part]
        for part, least in zip(parts, fastest, strict=True)
    ]


def pareto(parts: Sequence[Sequence[MeasuredCandidate]], budget: float) -> list[ParetoPoint]:
    """Choose for budgets from a hundredth of this one to a hundred times, for either objective."""
    points: list[ParetoPoint] = []
    objectives: tuple[Objective, Objective] = ("size", "latency")
    for objective in objectives:
        seen: set[tuple[int, float]] = set()
        for k in range(_POINTS):
            within = budget * 10 ** (4 * k / (_POINTS - 1) - 2)
            chosen = choose(parts, within, objective)
            if (chosen.bytes, chosen.us) not in seen:
                points.append(
                    ParetoPoint(
                        objective=objective,
                        budget=within,
                        bytes=chosen.bytes,
                        us=chosen.us,
                        harm=chosen.harm,
                    )
                )
                seen.add((chosen.bytes, chosen.us))
    return points


def explain_part(
    part: Sequence[MeasuredCandidate], chosen: MeasuredCandidate, objective: Objective, rows: int | None
) -> QuantizePart:
    """Put together what the result says of a part; ``rows`` is None for a layer."""
    return QuantizePart(
        kind=chosen.candidate.part.kind,
        name=chosen.candidate.part.name,
        rows=rows,
        chosen=part.index(chosen),
        reason=_reason(part, chosen, objective),
        candidates=tuple(
            QuantizeCandidate(
                label=m.candidate.label,
                bytes=m.bytes,
                us=m.us,
                harm=harm_figures(m.harm),
                estimate=m.harm.estimate if math.isfinite(m.harm.estimate) else None,
            )
            for m in part
        ),
    )


def harm_figures(harm: Harm) -> HarmFigures | None:
    """Return the harm as a result has it; None where it is infinite: the part does not fit."""
    if not math.isfinite(harm.estimate):
        return None
    return HarmFigures(
        measured=harm.measured,
        measured_se=harm.measured_se,
        expected=harm.expected,
        expected_se=harm.expected_se,
    )


def _reason(part: Sequence[MeasuredCandidate], chosen: MeasuredCandidate, objective: Objective) -> str:
    """Say what the precision saves and harms, and what the runner-up would."""
    exact = part[0]
    saved = (
        f"saves {bytes_text(exact.bytes - chosen.bytes)}" if chosen.bytes < exact.bytes else "saves nothing"
    )
    words = [f"{saved}, NE +{chosen.harm.estimate:.4%}"]
    if (runner := _runner_up(part, chosen, objective)) is None:
        words.append("nothing takes less")
    elif not math.isfinite(runner.harm.estimate):
        words.append(f"{runner.candidate.label} cannot hold it")
    else:
        more = (
            bytes_text(chosen.bytes - runner.bytes)
            if objective == "size"
            else f"{three(chosen.us - runner.us)} us"
        )
        words.append(f"{runner.candidate.label} would save {more} more at +{runner.harm.estimate:.4%}")
    return "; ".join(words)


def _runner_up(
    part: Sequence[MeasuredCandidate], chosen: MeasuredCandidate, objective: Objective
) -> MeasuredCandidate | None:
    """Return the candidate that harms least among those that take less; None where none does."""
    if objective == "size":
        cheaper = [m for m in part if m.bytes < chosen.bytes]
    else:
        cheaper = [m for m in part if m.us < chosen.us]
    return min(cheaper, key=lambda m: m.harm.estimate, default=None)
