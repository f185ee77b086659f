"""What was tuned, as the JSON file that ``laconic tune`` writes and ``laconic report`` draws."""

from __future__ import annotations

from laconic.adapt.curves import Curve
from laconic.adapt.tuned_bounds import MOST_ERROR, Choice
from laconic.report.tune_result import Chosen, TunedDirection, TunedTable, TuneResult
from laconic.tuning.tune import Tuned

__all__ = ["tune_result"]


def tune_result(tuned: Tuned, title: str) -> TuneResult:
    """Return everything that was measured and chosen; ``model_dump(mode="json")`` makes it plain JSON."""
    measured, bounds = tuned.measured, tuned.bounds
    return TuneResult(
        title=title,
        ranks=measured.ranks,
        steps=measured.steps,
        loss=measured.loss,
        slope=measured.slope,
        budget=tuned.budget,
        lower_bound=bounds.lower_bound,
        tables=tuple(
            TunedTable(
                name=table.name,
                rows=table.rows,
                paper_class=table.paper_class,
                homogenization=table.homogenization,
                forward=_direction(table.forward, forward, MOST_ERROR["forward"]),
                backward=_direction(table.backward, backward, MOST_ERROR["backward"]),
            )
            for table, forward, backward in zip(measured.tables, bounds.forward, bounds.backward, strict=True)
        ),
    )


def _direction(curve: Curve, choice: Choice, most_error: float) -> TunedDirection:
    return TunedDirection(
        bounds=curve.bounds,
        offered=tuple(error <= most_error for error in curve.error),
        bytes_sent=curve.bytes_sent,
        bytes_exact=curve.bytes_exact,
        error=curve.error,
        harm=tuple(curve.harm(i) for i in range(len(curve.bounds))),
        sensitivity=curve.sensitivity,
        sensitivity_se=curve.sensitivity_se,
        chosen=Chosen(
            bound=choice.bound,
            bytes_sent=choice.bytes_sent,
            harm=choice.harm,
            reason=choice.reason,
        ),
    )
