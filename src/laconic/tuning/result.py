"""What was tuned, as the JSON file that ``laconic tune`` writes and ``laconic report`` draws."""

from __future__ import annotations

from dataclasses import asdict
from typing import Literal

from laconic.adapt.curves import TableCurves
from laconic.adapt.tune_result import ChosenBound, TunedDirection, TunedTable, TuneResult
from laconic.adapt.tuned_bounds import MOST_ERROR
from laconic.tuning.tune import Tuned

__all__ = ["tune_result"]


def tune_result(tuned: Tuned, title: str) -> TuneResult:
    """Return everything that was measured and chosen; ``model_dump(mode="json")`` makes it plain JSON."""
    measured, bounds = tuned.measured, tuned.bounds
    chosen = zip(measured.tables, bounds.forward, bounds.backward, strict=True)
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
                forward=_direction(table, "forward", forward),
                backward=_direction(table, "backward", backward),
            )
            for table, forward, backward in chosen
        ),
    )


def _direction(
    table: TableCurves, side: Literal["forward", "backward"], chosen: ChosenBound
) -> TunedDirection:
    curve = table.forward if side == "forward" else table.backward
    return TunedDirection(
        **asdict(curve),
        offered=tuple(error <= MOST_ERROR[side] for error in curve.error),
        harm=tuple(curve.harm(i) for i in range(len(curve.bounds))),
        chosen=chosen,
    )
