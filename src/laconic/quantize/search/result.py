"""What was found, as the JSON file that ``laconic quantize`` writes and ``laconic report`` draws."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict

from laconic.numerals import bytes_text, three
from laconic.quantize.search.choose import Objective, ParetoPoint
from laconic.quantize.search.harm import Harm
from laconic.quantize.search.search import Found
from laconic.quantize.search.sensitivity import Measurement
from laconic.report.quantize_result import (
    HarmFigures,
    ModelFigures,
    QuantizeAttempt,
    QuantizeCandidate,
    QuantizePart,
    QuantizePoint,
    QuantizeResult,
    SampleCounts,
)

__all__ = ["quantize_result"]


def quantize_result(
    *,
    title: str,
    objective: Objective,
    budget: float,
    seed: int,
    batch: int,
    samples: SampleCounts,
    exact: ModelFigures,
    low: ModelFigures,
    harm: Harm,
    found: Found,
    parts: Sequence[Sequence[Measurement]],
    rows: dict[str, int],
    curve: Sequence[ParetoPoint],
) -> QuantizeResult:
    """Put everything together; ``rows`` of each table by name, ``harm`` and figures as the engine has them."""
    return QuantizeResult(
        title=title,
        objective=objective,
        budget=budget,
        seed=seed,
        batch=batch,
        samples=samples,
        exact=exact,
        low=low,
        predicted=found.chosen.harm,
        gap=found.chosen.gap,
        harm=_finite(harm),
        attempts=tuple(
            QuantizeAttempt(
                budget=attempt.budget,
                bytes=attempt.bytes,
                predicted=attempt.predicted,
                search=_figures(attempt.search),
                verification=None if attempt.verification is None else _figures(attempt.verification),
            )
            for attempt in found.attempts
        ),
        parts=tuple(
            _part(part, chosen, objective, rows)
            for part, chosen in zip(parts, found.chosen.parts, strict=True)
        ),
        pareto=tuple(QuantizePoint(**asdict(point)) for point in curve),
    )


def _figures(harm: Harm) -> HarmFigures | None:
    """None where logits were no numbers, or the format cannot hold the part."""
    return _finite(harm) if math.isfinite(harm.estimate) else None


def _finite(harm: Harm) -> HarmFigures:
    return HarmFigures(
        measured=harm.measured,
        measured_se=harm.measured_se,
        expected=harm.expected,
        expected_se=harm.expected_se,
    )


def _part(
    part: Sequence[Measurement], chosen: Measurement, objective: Objective, rows: dict[str, int]
) -> QuantizePart:
    about = chosen.candidate.part
    return QuantizePart(
        kind=about.kind,
        name=about.name,
        rows=rows.get(about.name) if about.kind == "table" else None,
        chosen=part.index(chosen),
        reason=_reason(part, chosen, objective),
        candidates=tuple(
            QuantizeCandidate(
                label=m.candidate.label,
                bytes=m.bytes,
                us=m.us,
                harm=_figures(m.harm),
                estimate=m.harm.estimate if math.isfinite(m.harm.estimate) else None,
            )
            for m in part
        ),
    )


def _reason(part: Sequence[Measurement], chosen: Measurement, objective: Objective) -> str:
    """Say what the choice saves and harms, and what the one next in line would."""
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


def _runner_up(part: Sequence[Measurement], chosen: Measurement, objective: Objective) -> Measurement | None:
    """Of the candidates that take less, the one that harms least."""
    if objective == "size":
        cheaper = [m for m in part if m.bytes < chosen.bytes]
    else:
        cheaper = [m for m in part if m.us < chosen.us]
    return min(cheaper, key=lambda m: m.harm.estimate, default=None)
