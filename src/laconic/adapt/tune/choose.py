"""Bounds for all tables and both directions that send the fewest bytes within one budget of loss.

Each direction of each table is one choice among its measured bounds and exactness; what a choice
costs is its bytes, what it harms is the loss, and the knapsack finds the best choice for all
together.

Bounds whose error rivals the signal are not offered, whatever their harm: a short measurement
cannot see what noise of that size does to the learning of rows that are rarely looked up.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

from laconic.adapt import AIM, BUDGET, MOST_GRADIENTS_ERROR, MOST_ROWS_ERROR
from laconic.adapt.economy import DIRECTIONS, Direction
from laconic.adapt.tune.curves import Curve, TableCurves
from laconic.adapt.tune.measure import Measured
from laconic.adapt.tune.result import ChosenBound, TunedDirection, TunedTable, TuneResult
from laconic.errors import ConfigError
from laconic.plan.solve.knapsack import Option, solve

__all__ = ["choose"]

_MOST_ERROR = {"forward": MOST_ROWS_ERROR, "backward": MOST_GRADIENTS_ERROR}

_WORTH_MENTIONING = 0.005  # share of bytes: less would read as 0 %


def choose(measured: Measured, title: str, budget: float = BUDGET) -> TuneResult:
    """Choose bounds for a ``budget``, the increase of the loss that is allowed, as a share of it.

    What is predicted is no more than 60 % of it (``AIM``).

    Returns everything that was measured and chosen; ``title`` says what for.
    """
    if not 0 < budget < 1:
        raise ConfigError(f"tune: expected a budget between 0 and 1, as 0.0005 or 0.05%, got {budget!r}")
    sides = [_Side.of(table, direction) for table in measured.tables for direction in DIRECTIONS]
    found = solve([side.options for side in sides], AIM * budget)
    tuned = iter([side.tuned(chosen) for side, chosen in zip(sides, found.chosen, strict=True)])
    return TuneResult(
        title=title,
        ranks=measured.ranks,
        steps=measured.steps,
        loss=measured.loss,
        budget=budget,
        lower_bound=found.lower_bound,
        tables=tuple(
            TunedTable(
                name=table.name,
                rows=table.rows,
                paper_class=table.paper_class,
                homogenization=table.homogenization,
                forward=next(tuned),
                backward=next(tuned),
            )
            for table in measured.tables
        ),
    )


@dataclass(frozen=True, slots=True)
class _Side:
    """One direction of one table: exactness first, then the offered bounds in ascending order."""

    curve: Curve
    offered: tuple[bool, ...]
    bounds: list[float | None]
    options: list[Option]

    @classmethod
    def of(cls, table: TableCurves, direction: Direction) -> _Side:
        curve = table.forward if direction == "forward" else table.backward
        offered = tuple(error <= _MOST_ERROR[direction] for error in curve.error)
        kept = [i for i, offer in enumerate(offered) if offer]
        bounded = [Option(curve.bytes_sent[i], curve.harm(i)) for i in kept]
        exact = Option(curve.bytes_exact, 0.0)
        return cls(curve, offered, [None, *(curve.bounds[i] for i in kept)], [exact, *bounded])

    def tuned(self, chosen: int) -> TunedDirection:
        """Return what was measured, and the choice with its reason."""
        option = self.options[chosen]
        return TunedDirection(
            **asdict(self.curve),
            offered=self.offered,
            harm=tuple(self.curve.harm(i) for i in range(len(self.curve.bounds))),
            chosen=ChosenBound(
                bound=self.bounds[chosen],
                bytes_sent=option.cost,
                harm=option.harm,
                reason=self._reason(chosen),
            ),
        )

    def _reason(self, chosen: int) -> str:
        option = self.options[chosen]
        ratio = self.curve.bytes_exact / option.cost if option.cost else 1.0
        words = [f"{ratio:.1f}x fewer bytes" if chosen else "exact", f"loss +{option.harm:.4%}"]
        if chosen + 1 == len(self.options):
            return "; ".join([*words, "the loosest that is offered"])
        looser, bound = self.options[chosen + 1], self.bounds[chosen + 1]
        saved = 1 - looser.cost / option.cost if option.cost else 0.0
        if saved < _WORTH_MENTIONING:
            return "; ".join([*words, f"{bound:g} would save nothing more"])
        more = looser.harm - option.harm
        return "; ".join([*words, f"{bound:g} would save {saved:.0%} more at +{more:.4%}"])
