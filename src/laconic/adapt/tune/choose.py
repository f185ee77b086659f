"""Bounds for all tables and both directions that send the fewest bytes within one budget of loss.

Each direction of each table is one choice among its measured bounds and exactness; what a choice costs is
its bytes, what it harms is the loss, and the knapsack finds the best choice for all together.

Bounds whose error rivals the signal are not offered, whatever their harm: a short measurement cannot see what noise
of that size does to the learning of rows that are rarely looked up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Literal

from laconic.adapt.tune import BUDGET
from laconic.adapt.tune.curves import Curve, TableCurves
from laconic.adapt.tune.measure import Measured
from laconic.adapt.tune.result import ChosenBound, TunedDirection, TunedTable, TuneResult
from laconic.errors import ConfigError
from laconic.plan.solve.knapsack import Option, solve

__all__ = ["MOST_ERROR", "Tuned", "TunedBounds", "choose", "default_budget", "tune_bounds", "tune_result"]

MOST_ERROR = {"forward": 0.5, "backward": 0.4}
"""Mean square error beside the mean square of what is sent, up to which bounds are offered."""

_LEAST_BUDGET = 1e-5  # of the loss, where next to nothing has been learnt
_WORTH_MENTIONING = 0.005  # share of bytes: less would read as 0 %


@dataclass(frozen=True, slots=True)
class TunedBounds:
    """Choices of all tables, in their order."""

    forward: tuple[ChosenBound, ...]
    backward: tuple[ChosenBound, ...]
    lower_bound: float
    """Bytes below which no choice within the budget can get."""

    @property
    def bytes_sent(self) -> float:
        """Of all tables in both directions, by all ranks per step."""
        return sum(choice.bytes_sent for choice in (*self.forward, *self.backward))

    @property
    def harm(self) -> float:
        """Predicted increase of the loss, as a share of it."""
        return sum(choice.harm for choice in (*self.forward, *self.backward))


@dataclass(frozen=True, slots=True)
class Tuned:
    """Bounds for a budget."""

    measured: Measured
    bounds: TunedBounds
    budget: float


def default_budget(measured: Measured, share: float = BUDGET) -> float:
    """Return the increase of the loss that takes back this share of what has been learnt, as a share of the loss.

    Equal increases of the loss are not equal harm: 0.07 % cost as much AUC on Book-Crossing, whose loss is 0.77 of
    the labels' entropy, as 0.9 % on The Complete Journey, where it is 0.24.
    """
    return min(max(share * measured.learnt, _LEAST_BUDGET), 0.5)


def choose(measured: Measured, budget: float | None = None) -> Tuned:
    """Choose bounds whose predicted increase of the loss is no more than ``budget``, a share of it."""
    if budget is None:
        budget = default_budget(measured)
    if not 0 < budget < 1:
        raise ConfigError(f"tune: expected a budget between 0 and 1, as 0.0005 or 0.05%, got {budget!r}")
    return Tuned(measured, tune_bounds(measured.tables, budget), budget)


def tune_bounds(tables: Sequence[TableCurves], budget: float) -> TunedBounds:
    """Choose bounds whose harms add up to no more than ``budget``, a share of the loss."""
    curves = [
        _offered(curve, direction)
        for table in tables
        for direction, curve in (("forward", table.forward), ("backward", table.backward))
    ]
    options = [_options(curve) for curve in curves]
    found = solve(options, budget)
    choices = [
        _choice(curve, option, chosen)
        for curve, option, chosen in zip(curves, options, found.chosen, strict=True)
    ]
    return TunedBounds(tuple(choices[0::2]), tuple(choices[1::2]), found.lower_bound)


def _offered(curve: Curve, direction: str) -> Curve:
    kept = [i for i, error in enumerate(curve.error) if error <= MOST_ERROR[direction]]
    return replace(
        curve,
        bounds=tuple(curve.bounds[i] for i in kept),
        bytes_sent=tuple(curve.bytes_sent[i] for i in kept),
        error=tuple(curve.error[i] for i in kept),
    )


def _options(curve: Curve) -> list[Option]:
    """Exactness first, then the bounds in ascending order."""
    bounded = [Option(curve.bytes_sent[i], curve.harm(i)) for i in range(len(curve.bounds))]
    return [Option(curve.bytes_exact, 0.0), *bounded]


def _choice(curve: Curve, options: Sequence[Option], chosen: int) -> ChosenBound:
    option = options[chosen]
    ratio = curve.bytes_exact / option.cost if option.cost else 1.0
    words = [f"{ratio:.1f}x fewer bytes" if chosen else "exact", f"loss +{option.harm:.4%}"]
    if chosen + 1 < len(options):
        looser, next_bound = options[chosen + 1], curve.bounds[chosen]
        saved = 1 - looser.cost / option.cost if option.cost else 0.0
        if saved < _WORTH_MENTIONING:
            words.append(f"{next_bound:g} would save nothing more")
        else:
            more = looser.harm - option.harm
            words.append(f"{next_bound:g} would save {saved:.0%} more at +{more:.4%}")
    else:
        words.append("the loosest that is offered")
    bound = curve.bounds[chosen - 1] if chosen else None
    return ChosenBound(bound=bound, bytes_sent=option.cost, harm=option.harm, reason="; ".join(words))


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
