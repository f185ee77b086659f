"""Bounds for all tables and both directions that send the fewest bytes within one budget of loss.

Each direction of each table is one choice among its measured bounds and exactness; what a choice
costs is its bytes, what it harms is the loss, and the knapsack finds the best choice for all
together.

Bounds whose error rivals the signal are not offered, whatever their harm: a short measurement
cannot see what noise of that size does to the learning of rows that are rarely looked up.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

from laconic.adapt.economy import DIRECTIONS, Direction
from laconic.adapt.tune import BUDGET
from laconic.adapt.tune.curves import Curve, TableCurves
from laconic.adapt.tune.measure import Measured
from laconic.adapt.tune.result import ChosenBound, TunedDirection, TunedTable, TuneResult
from laconic.errors import ConfigError
from laconic.plan.solve.knapsack import Option, solve

__all__ = ["MOST_ERROR", "choose", "default_budget"]

MOST_ERROR = {"forward": 0.5, "backward": 0.4}
"""Mean square error beside the mean square of what is sent, up to which bounds are offered."""

_LEAST_BUDGET = 1e-5  # of the loss, where next to nothing has been learnt
_WORTH_MENTIONING = 0.005  # share of bytes: less would read as 0 %


def default_budget(measured: Measured, share: float = BUDGET) -> float:
    """Return the increase that takes back this share of what was learnt, as a share of the loss.

    Equal increases of the loss are not equal harm: 0.07 % cost as much AUC on Book-Crossing, whose
    loss is 0.77 of the labels' entropy, as 0.9 % on The Complete Journey, where it is 0.24.
    """
    return min(max(share * measured.learnt, _LEAST_BUDGET), 0.5)


def choose(measured: Measured, title: str, budget: float | None = None) -> TuneResult:
    """Choose bounds whose predicted increase of the loss is no more than ``budget``, a share of it.

    Returns everything that was measured and chosen; ``title`` says what for.
    """
    if budget is None:
        budget = default_budget(measured)
    if not 0 < budget < 1:
        raise ConfigError(f"tune: expected a budget between 0 and 1, as 0.0005 or 0.05%, got {budget!r}")
    sides = [_Side.of(table, direction) for table in measured.tables for direction in DIRECTIONS]
    found = solve([side.options for side in sides], budget)
    tuned = iter([side.tuned(chosen) for side, chosen in zip(sides, found.chosen, strict=True)])
    return TuneResult(
        title=title,
        ranks=measured.ranks,
        steps=measured.steps,
        loss=measured.loss,
        slope=measured.slope,
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
        offered = tuple(error <= MOST_ERROR[direction] for error in curve.error)
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
