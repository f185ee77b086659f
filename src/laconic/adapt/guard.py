"""The guard: bounds per table that keep what rounding costs the model within a budget.

Ranks add up what rounding costs, by table, at intervals that double (``agrees_after``): from
squares of gradients and the grids that were used, without a trial and without a message beside the
one that also agrees on the tables' scales. So the evidence is of all rows and samples. The guard
makes bounds of it, each a factor on the bound that the plan has, which is never exceeded::

    rows        cost at once, in proportion to the square of the bound
    gradients   noise stays in the rows. Adagrad's steps shrink, so that each doubling of the steps
                adds about as much: cost = k * (squares of the factor, summed over doublings)

Bounds are chosen for 60 % of the budget (``AIM``), as what comes true scatters. Rows and gradients
have half of that each, because both send the same rows: what a bit more costs in bytes and takes
off the harm is then the same. Within a direction, ``rows * log2(1 / bound)`` bits are fewest for a
given sum of costs where a table's cost is in proportion to the rows that it sends. That is the
share of the budget that a table gets; what some cannot use, others get.

Besides, errors stay small beside their signal (``MOST_ROWS_ERROR``, ``MOST_GRADIENTS_ERROR``).

A run begins at bounds that do no harm (those of ``Compression()``, half of them for gradients), or
the plan's if they are finer. Evidence narrows them at once, and widens them by at most two times at
a review: rows from step 32 on, which can be narrowed again, gradients from step 256 on, whose noise
stays. What is not a number is no evidence, and narrows. All ranks feed it the same figures and so
decide alike.

Shape legend: ``T`` tables.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from laconic.adapt import AIM, MOST_GRADIENTS_ERROR, MOST_ROWS_ERROR
from laconic.errors import ConfigError
from laconic.exchange.noise import RoundingCost

__all__ = ["Guard", "GuardDecision", "HarmEstimate", "Losses", "harm_of"]

Floats = NDArray[np.float64]
Direction = Literal["rows", "gradients"]

_WIDENS_BY = 2.0
_WIDENS_FROM = {"rows": 32, "gradients": 256}  # steps: before, too little was seen
_GROWS_FROM, _MOST_GROWTH = 7.9, 4.0  # doublings: before, all figures grow
_NARROWS_UNSOUND = 1 / 64
_EXACT_BELOW = 2.0**-12  # a factor this small sends no fewer bytes than exactness
_LEAST_FACTOR = _EXACT_BELOW / 64
_WORTH_A_CHANGE = 0.1
_LEAST, _MOST = 0.2, 2.0  # of what is expected: docs/benchmarks.md has how often that held
_CHANCE = 2e-4  # of the loss: what two runs differ by for no reason, at the least


@dataclass(frozen=True, slots=True)
class HarmEstimate:
    """What a run believes that rounding has cost, as shares of its loss."""

    rows: float
    """By errors of looked-up rows."""
    gradients: float
    """By noise that gradients left in rows."""

    @property
    def expected(self) -> float:
        """Both."""
        return self.rows + self.gradients

    @property
    def low(self) -> float:
        """Lower end of an interval that held nine of ten progressive losses; below 0 by chance."""
        return _LEAST * self.expected - _CHANCE

    @property
    def high(self) -> float:
        """Its upper end."""
        return _MOST * self.expected + _CHANCE

    @property
    def known(self) -> bool:
        """Whether anything was rounded and counted."""
        return self.expected > 0

    def line(self, budget: float | None = None) -> str:
        """Say it in a sentence; and whether it is more than a ``budget`` of the loss."""
        if not math.isfinite(self.expected):
            return "rounding: what it cost is not known, because something was not a number"
        words = (
            f"rounding has cost about {self.expected:.3%} of the loss ({self.low:.3%} to {self.high:.3%}): "
            f"{self.rows:.3%} by rows, {self.gradients:.3%} by their gradients"
        )
        over = budget is not None and self.expected > budget
        return words + (f"; more than the budget of {budget:.3%}" if over else "")

    def as_dict(self) -> dict[str, float]:
        """Return it for files."""
        return {"rows": self.rows, "gradients": self.gradients, "low": self.low, "high": self.high}


class Losses:
    """The mean loss of training between two reviews; the same on all ranks."""

    def __init__(self) -> None:
        self.mean = math.nan
        """Mean loss of a sample of all ranks before the last review; NaN before the first."""
        self._total, self._samples = 0.0, 0

    def add(self, total: float, samples: int) -> None:
        """Take a step: the sum of its losses, over the samples of all ranks."""
        self._total, self._samples = self._total + total, self._samples + samples

    def begin_anew(self) -> None:
        """Take the mean of what was added since the last time."""
        if self._samples:
            self.mean = self._total / self._samples
        self._total, self._samples = 0.0, 0

    def state(self) -> dict[str, Any]:
        """Return what a checkpoint needs; there is no NaN in JSON."""
        known = {} if math.isnan(self.mean) else {"mean": self.mean}
        return {**known, "total": self._total, "samples": self._samples}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take back what ``state`` returned; states of before have other figures."""
        self.mean = float(state.get("mean", math.nan))
        self._total, self._samples = float(state.get("total", 0.0)), int(state.get("samples", 0))


def harm_of(cost: RoundingCost, loss: float) -> HarmEstimate:
    """Return what rounding has cost; infinite where that is not a number, NaN before any step."""
    if math.isnan(loss):
        return HarmEstimate(math.nan, math.nan)
    if not (0 < loss < math.inf and np.isfinite(cost.rows_T).all() and np.isfinite(cost.gradients_T).all()):
        return HarmEstimate(math.inf, math.inf)
    return HarmEstimate(float(cost.rows_T.sum()) / loss, float(cost.gradients_T.sum()) / loss)


@dataclass(frozen=True, slots=True)
class GuardDecision:
    """One change, and the evidence for it."""

    step: int
    direction: Direction
    tables: tuple[str, ...]
    factor: float
    """Factor by which the bounds of these tables were multiplied."""
    reason: str


class Guard:
    """Factors on the bounds of all tables, both directions."""

    def __init__(
        self,
        names: tuple[str, ...],
        budget: float,
        first: Mapping[Direction, Floats] | None = None,
    ) -> None:
        """``budget``: share of the loss. ``first``: factors to begin with; by default 1."""
        if not 0 < budget < 1:
            raise ConfigError(f"guard.budget: expected a share between 0 and 1, as 0.001, got {budget!r}")
        self.names, self.budget = names, budget
        first = first or {}
        self.rows_T: Floats = np.array(first.get("rows", np.ones(len(names))))
        self.gradients_T: Floats = np.array(first.get("gradients", np.ones(len(names))))
        self._doublings = 0.0
        self._squares_T = np.zeros(len(names))  # of factors of gradients, summed over doublings
        self._units: list[tuple[float, list[float]]] = []  # doublings, cost of gradients / squares then

    def exact_T(self, direction: Direction) -> NDArray[np.bool_]:
        """Tables that travel exactly because no bound would do."""
        factor_T = self.rows_T if direction == "rows" else self.gradients_T
        return factor_T < _EXACT_BELOW

    def review(self, step: int, loss: float, cost: RoundingCost) -> list[GuardDecision]:
        """Judge all tables; ``loss`` is the mean loss of a sample lately."""
        since = math.log2(step + 1) - self._doublings
        self._doublings += since
        self._squares_T += np.where(cost.gradients_error_T > 0, since * self.gradients_T**2, 0.0)
        figures = (cost.rows_T, cost.gradients_T, cost.rows_error_T, cost.gradients_error_T)
        finite_T: NDArray[np.bool_] = np.all([np.isfinite(each_T) for each_T in figures], axis=0)
        sound_T = finite_T & (0 < loss < math.inf)
        rows_T, gradients_T = (
            np.where(sound_T, np.maximum(cost_T, 0.0), 0.0) / (loss if 0 < loss < math.inf else 1.0)
            for cost_T in (cost.rows_T, cost.gradients_T)
        )
        if not cost.sent_T.sum() > 0:
            return []
        most_T = np.minimum(self.rows_T * _root_of_share(MOST_ROWS_ERROR, cost.rows_error_T), 1.0)
        budget_T = self._budgets(cost.sent_T, rows_T * (most_T / self.rows_T) ** 2)
        wanted_T = np.minimum(self.rows_T * _root_of_share(budget_T, rows_T), most_T)
        wanted_T = np.where(_seen(cost, cost.rows_error_T, self.exact_T("rows")), wanted_T, self.rows_T)
        decisions = self._move("rows", self.rows_T, wanted_T, sound_T, (rows_T, cost.rows_error_T), step)
        most_T = self.gradients_T * _root_of_share(MOST_GRADIENTS_ERROR, cost.gradients_error_T)
        most_T = np.minimum(most_T, 1.0)
        steady_T = gradients_T / np.maximum(self._squares_T / self._doublings, 1e-300)
        # what a table has spent stays spent, though its bound be narrower now
        budget_T = self._budgets(cost.sent_T, np.maximum(steady_T * most_T**2, gradients_T))
        wanted_T = np.minimum(self._gradients_within(budget_T, gradients_T), most_T)
        seen_T = _seen(cost, cost.gradients_error_T, self.exact_T("gradients"))
        wanted_T = np.where(seen_T, wanted_T, self.gradients_T)
        evidence = gradients_T, cost.gradients_error_T
        return decisions + self._move("gradients", self.gradients_T, wanted_T, sound_T, evidence, step)

    def _budgets(self, sent_T: Floats, most_T: Floats) -> Floats:
        """Return what each table of a direction may cost, in proportion to the rows that it sends.

        Some cost less (``most_T``) at the widest bound that they may have; others get the rest.
        """
        left, found_T, open_T = AIM * self.budget / 2, np.zeros(len(sent_T)), sent_T > 0
        while open_T.any():
            share_T = left * sent_T / sent_T[open_T].sum()
            found_T = np.where(open_T, share_T, found_T)
            cheap_T = open_T & (most_T < share_T)
            if not cheap_T.any():
                break
            left, open_T = max(left - most_T[cheap_T].sum(), 0.0), open_T & ~cheap_T
        return found_T

    def _gradients_within(self, budget_T: Floats, cost_T: Floats) -> Floats:
        """Return factors with which each table keeps its budget for doublings to come.

        Costs are taken to grow for two more doublings as they did in the last.

        Each takes a quarter of what is left of the budget, and no more than if bounds had always
        been these. A sixteenth of that is taken in any case: beside what was spent it is nothing.
        """
        per_doubling_T = cost_T / np.maximum(self._squares_T, 1e-300)
        per_doubling_T = per_doubling_T * self._growth(per_doubling_T) ** 2
        allowed_T = budget_T / np.maximum(per_doubling_T, 1e-300)
        steady_T = allowed_T / self._doublings
        left_T = (allowed_T - self._squares_T) / 4
        return np.sqrt(np.clip(left_T, steady_T / 16, steady_T))

    def _growth(self, unit_T: Floats) -> float:
        """Return how much more the same noise costs than when the steps were half as many.

        A model that learns much gets more sensitive, and noise that is in the rows stays there.
        """
        before = [then_T for doublings, then_T in self._units if doublings <= self._doublings - 0.99]
        self._units = [*self._units[-8:], (self._doublings, unit_T.tolist())]
        if not before or self._doublings < _GROWS_FROM:
            return 1.0
        then, now = (float(np.dot(each_T, self._squares_T)) for each_T in (before[-1], unit_T))
        return float(np.clip(now / then, 1.0, _MOST_GROWTH)) if then > 0 else 1.0

    def _move(
        self,
        direction: Direction,
        factor_T: Floats,
        wanted_T: Floats,
        sound_T: NDArray[np.bool_],
        evidence: tuple[Floats, Floats],
        step: int,
    ) -> list[GuardDecision]:
        """Change what is worth a change, and say why."""
        cost_T, error_T = evidence
        most_T = factor_T * (_WIDENS_BY if step >= _WIDENS_FROM[direction] else 1.0)
        new_T = np.minimum(np.minimum(wanted_T, most_T), 1.0)
        new_T = np.where(sound_T, new_T, factor_T * _NARROWS_UNSOUND)
        new_T = np.maximum(new_T, _LEAST_FACTOR)  # of which bounds come back in some reviews
        change_T = new_T / factor_T
        moved = np.flatnonzero(np.abs(np.log(change_T)) >= _WORTH_A_CHANGE)
        decisions = []
        for t in moved:
            word = "widened" if change_T[t] > 1 else "narrowed"
            why = (
                f"{word}: costs {cost_T[t]:.4%} of {cost_T.sum():.4%} of the loss, aim is {AIM * self.budget / 2:.3%}; "
                f"error is {error_T[t]:.3f} of the signal"
                if sound_T[t]
                else "narrowed: evidence is not finite, so nothing speaks for this bound"
            )
            decisions.append(GuardDecision(step, direction, (self.names[t],), float(change_T[t]), why))
        factor_T[moved] = new_T[moved]
        return decisions

    def summary(self) -> str:
        """Return one line on where the guard stands."""
        rows, gradients = np.median(self.rows_T), np.median(self.gradients_T)
        exact = int(self.exact_T("rows").sum() + self.exact_T("gradients").sum())
        words = f"guard: bounds x{rows:.2g} rows, x{gradients:.2g} gradients"
        return words + (f", {exact} exact" if exact else "")

    def state(self) -> dict[str, Any]:
        """Return what a checkpoint needs."""
        return {
            "rows": self.rows_T.tolist(),
            "gradients": self.gradients_T.tolist(),
            "doublings": self._doublings,
            "squares": self._squares_T.tolist(),
            "units": self._units,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Take back what ``state`` returned; of states from before, the factors."""
        if len(state["rows"]) != len(self.names):
            raise ConfigError(
                f"guard: expected the state of {len(self.names)} tables, got one of {len(state['rows'])}; "
                "the tables of the checkpoint are others"
            )
        rows_T, gradients_T = np.array(state["rows"]), np.array(state["gradients"])
        if "squares" in state:
            self._doublings, self._squares_T = float(state["doublings"]), np.array(state["squares"])
            self._units = [(float(doublings), list(unit_T)) for doublings, unit_T in state["units"]]
        else:  # what that guard did not trust yet was exact, whatever its factors
            rows_T, gradients_T = np.minimum(rows_T, self.rows_T), np.minimum(gradients_T, self.gradients_T)
        self.rows_T, self.gradients_T = (
            np.maximum(factor_T, _LEAST_FACTOR) for factor_T in (rows_T, gradients_T)
        )


def _seen(cost: RoundingCost, error_T: Floats, exact_T: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Whether there is evidence: not where something else than a bound was sent, as a cast."""
    return (cost.sent_T > 0) & ((error_T > 0) | exact_T)


def _root_of_share(allowed_T: Floats | float, square_T: Floats) -> Floats:
    """Return how much wider a bound may be for its square to be what is allowed; 2 at most."""
    widest_T = np.full(len(square_T), _WIDENS_BY**2)
    share_T = np.divide(allowed_T, square_T, out=widest_T, where=square_T > 0)
    wider_T: Floats = np.sqrt(np.minimum(share_T, _WIDENS_BY**2))
    return wider_T
