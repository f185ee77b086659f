"""The guard: keeps what compression costs the model inside a budget, by evidence.

It starts with exact communication and lets the plan in when evidence allows. Evidence comes in two
kinds:

look   Held-out batches are scored with exact rows and with rows as they would travel. It shows the
       harm done to each sample, and how much of each table's signal is error.
fork   The same few steps are trained from one state with compressed and with exact communication.
       It shows the share of learning that was lost, and how far each table's update was from the
       exact one.

Rows and gradients have half of the budget each. What exceeds its half is tightened at once, what
stays far below it is loosened again, and a table whose error rivals its signal is tightened by
itself; so is what is seen as something else than a number, which proves nothing. Harms are means
with a confidence bound that holds at all looks together (``confidence``), so looking often does not
fool it; a change begins a new mean. All ranks feed it the same evidence and so decide alike.

Shape legend: ``T`` tables.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from laconic.adapt.confidence import RunningMean
from laconic.adapt.harm import COMES_TRUE, LEAST_SLOPE
from laconic.errors import ConfigError

__all__ = ["ForkEvidence", "Guard", "GuardDecision", "LookEvidence", "Losses"]


class Losses:
    """Means over steps 2^k to 2^(k+1); the same on all ranks."""

    def __init__(self) -> None:
        self._spans: list[tuple[float, int]] = []  # sum of losses and their number

    def add(self, step: int, loss: float) -> None:
        """Take the mean loss of a step, counted from 1, over the samples of all ranks."""
        span = step.bit_length() - 1
        while len(self._spans) <= span:
            self._spans.append((0.0, 0))
        total, count = self._spans[span]
        self._spans[span] = (total + loss, count + 1)

    def slope(self) -> float:
        """Share of the loss that an e-fold of steps last took off; 0 until it is known."""
        full = [total / count for total, count in self._spans if count]
        if len(full) < 2 or not full[-1] > 0:
            return 0.0
        return max((full[-2] - full[-1]) / full[-1] / math.log(2), 0.0)

    def state(self) -> dict[str, Any]:
        """Return what a checkpoint needs."""
        return {"spans": list(self._spans)}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take back what ``state`` returned."""
        self._spans = [(float(total), int(count)) for total, count in state["spans"]]


Floats = NDArray[np.float64]
Review = Literal["look", "fork"]

_FIRST = 8  # steps before the first review, exact
_LOOKS_GROW, _FORKS_GROW = 2.0, 8.0  # intervals between reviews: their cost fades as a run gets long
_ALPHA = 0.05
_TIGHTEST_AT = 4096  # samples, about those of one look
_MOST_ROW_ERROR, _MOST_UPDATE_ERROR = 0.05, 0.04  # of the signal; tune.choose says why there are limits
_EXACT_BELOW = 2.0**-12  # a factor this small sends no fewer bytes than exactness
_AT_ONCE = 1 / 64  # what one look tightens rows by at most


@dataclass(frozen=True, slots=True)
class LookEvidence:
    """What all ranks saw in one look."""

    step: int
    loss: float
    """Mean loss of the scored samples with exact rows."""
    harm: Floats
    """Harm done to each scored sample."""
    harm_T: Floats
    """Mean harm when only one table's rows travel compressed."""
    row_error_T: Floats
    """Mean square error of rows beside their mean square."""


@dataclass(frozen=True, slots=True)
class ForkEvidence:
    """What all ranks saw in one fork."""

    step: int
    lost: Floats
    """Loss of each trained sample after compressed steps - after exact ones."""
    learnt: float
    """Mean loss of a sample that the exact steps took off."""
    update_error_T: Floats
    """Mean square of (applied - exact) gradients beside the mean square of exact ones."""
    cosine_T: Floats
    """Cosine between applied and exact gradients."""
    slope: float
    """Share of the loss that training takes off while steps grow e-fold."""


@dataclass(frozen=True, slots=True)
class GuardDecision:
    """One change, and the evidence for it."""

    step: int
    direction: Literal["rows", "gradients"]
    tables: tuple[str, ...]
    factor: float
    """Factor by which the bounds of these tables were multiplied."""
    reason: str


class Guard:
    """Factors on the bounds of all tables, both directions."""

    def __init__(self, names: tuple[str, ...], budget: float, loosest: float = 1.0) -> None:
        """``budget``: share of the normalized entropy. ``loosest``: largest factor on a bound."""
        if not 0 < budget < 1:
            raise ConfigError(f"guard.budget: expected a share between 0 and 1, as 0.001, got {budget!r}")
        self.names, self.budget, self.loosest = names, budget, loosest
        self.rows_T, self.gradients_T = np.ones(len(names)), np.ones(len(names))
        self.trusted = False
        """Whether the plan is in force; exact communication until then."""
        self._next = {"look": _FIRST, "fork": _FIRST}
        self._interval = {"look": float(_FIRST), "fork": float(_FIRST)}
        self._harm, self._lost = RunningMean(_TIGHTEST_AT), RunningMean(_TIGHTEST_AT)
        self._passed = {"look": False, "fork": False}

    def due(self, step: int) -> list[Review]:
        """Reviews to make after ``step`` steps, in this order."""
        return [kind for kind in ("fork", "look") if step >= self._next[kind]]

    def exact_T(self, direction: Literal["rows", "gradients"]) -> NDArray[np.bool_]:
        """Tables that travel exactly because no bound would do."""
        factor_T = self.rows_T if direction == "rows" else self.gradients_T
        return factor_T < _EXACT_BELOW

    def look(self, evidence: LookEvidence) -> list[GuardDecision]:
        """Judge the rows of all tables."""
        half, step, loss = self.budget / 2, evidence.step, evidence.loss
        sound = 0 < loss < math.inf and bool(np.isfinite(evidence.harm).all())
        decisions = self._unproven(
            "rows", self.rows_T, sound, evidence.harm_T + evidence.row_error_T, step
        ) or self._collapsing("rows", self.rows_T, evidence.row_error_T, _MOST_ROW_ERROR, step)
        if sound:
            self._harm.add(evidence.harm / loss)
        upper = self._harm.upper(_ALPHA)
        if not decisions and upper > half:
            decisions = self._tighten_rows(evidence, upper, half)
        elif not decisions and upper < half / 6:
            why = f"harm of rows at most {upper:.4%} of {half:.3%}"
            decisions = self._loosen("rows", self.rows_T, step, why)
        self._reviewed("look", step, tightened=any(d.factor < 1 for d in decisions))
        if decisions:
            self._harm = RunningMean(_TIGHTEST_AT)
        return decisions

    def fork(self, evidence: ForkEvidence) -> list[GuardDecision]:
        """Judge the gradients of all tables."""
        half, step = self.budget / 2, evidence.step
        sound = math.isfinite(evidence.learnt + evidence.slope) and bool(np.isfinite(evidence.lost).all())
        decisions = self._unproven(
            "gradients", self.gradients_T, sound, evidence.update_error_T, step
        ) or self._collapsing(
            "gradients", self.gradients_T, evidence.update_error_T, _MOST_UPDATE_ERROR, step
        )
        if sound and evidence.learnt > 0:
            scale = COMES_TRUE * max(evidence.slope, LEAST_SLOPE) / evidence.learnt
            self._lost.add(scale * evidence.lost)
        upper = self._lost.upper(_ALPHA) if self._lost.count else 0.0
        if not decisions and upper > half:
            factor = max(math.sqrt(half / 2 / max(self._lost.mean, half)), 1 / 16)
            self.gradients_T *= factor
            least = float(evidence.cosine_T.min())
            why = f"lost learning will cost up to {upper:.4%}, more than {half:.3%}; least cosine of updates {least:.3f}"
            decisions = [GuardDecision(step, "gradients", self.names, factor, why)]
        elif not decisions and upper < half / 6:
            why = f"lost learning will cost at most {upper:.4%} of {half:.3%}"
            decisions = self._loosen("gradients", self.gradients_T, step, why)
        self._reviewed("fork", step, tightened=any(d.factor < 1 for d in decisions))
        if decisions:
            self._lost = RunningMean(_TIGHTEST_AT)
        return decisions

    def summary(self) -> str:
        """Return one line on where the guard stands."""
        if not self.trusted:
            return "guard: exact until the plan is proven"
        rows, gradients = np.median(self.rows_T), np.median(self.gradients_T)
        exact = int(self.exact_T("rows").sum() + self.exact_T("gradients").sum())
        return f"guard: bounds x{rows:.2g} rows, x{gradients:.2g} gradients" + (
            f", {exact} exact" if exact else ""
        )

    def state(self) -> dict[str, Any]:
        """Return what a checkpoint needs."""
        return {
            "rows": self.rows_T.tolist(),
            "gradients": self.gradients_T.tolist(),
            "trusted": self.trusted,
            "next": dict(self._next),
            "interval": dict(self._interval),
            "passed": dict(self._passed),
            "harm": self._harm.state(),
            "lost": self._lost.state(),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Take back what ``state`` returned."""
        if len(state["rows"]) != len(self.names):
            raise ConfigError(
                f"guard: expected the state of {len(self.names)} tables, got one of {len(state['rows'])}; "
                "the tables of the checkpoint are others"
            )
        self.rows_T, self.gradients_T = np.array(state["rows"]), np.array(state["gradients"])
        self.trusted = bool(state["trusted"])
        self._next, self._interval = dict(state["next"]), dict(state["interval"])
        self._passed = dict(state["passed"])
        self._harm = RunningMean.restore(_TIGHTEST_AT, state["harm"])
        self._lost = RunningMean.restore(_TIGHTEST_AT, state["lost"])

    def _unproven(
        self,
        direction: Literal["rows", "gradients"],
        factor_T: Floats,
        sound: bool,
        seen_T: Floats,
        step: int,
    ) -> list[GuardDecision]:
        """Tighten tables whose evidence is not finite; all if their joint evidence is not."""
        wrong_T = ~np.isfinite(seen_T) if sound else np.ones(len(self.names), bool)
        if not wrong_T.any():
            return []
        # not to zero: evidence may become sound again
        factor_T[wrong_T] = np.maximum(factor_T[wrong_T], _EXACT_BELOW) * _AT_ONCE
        names = tuple(self.names[t] for t in np.flatnonzero(wrong_T))
        why = "evidence is not finite, so nothing speaks for these bounds"
        return [GuardDecision(step, direction, names, _AT_ONCE, why)]

    def _collapsing(
        self,
        direction: Literal["rows", "gradients"],
        factor_T: Floats,
        error_T: Floats,
        most: float,
        step: int,
    ) -> list[GuardDecision]:
        """Tighten tables whose error is too large beside their signal."""
        decisions = []
        for t in np.flatnonzero((error_T > most) & ~self.exact_T(direction)):
            # well below the limit: every narrowing is another review, and those cost bytes
            factor = _relative_bound(0.6 * most) / _relative_bound(float(error_T[t]))
            factor_T[t] *= factor
            why = f"error is {error_T[t]:.2f} of the signal, more than {most:g}"
            decisions.append(GuardDecision(step, direction, (self.names[t],), factor, why))
        return decisions

    def _tighten_rows(self, evidence: LookEvidence, upper: float, half: float) -> list[GuardDecision]:
        """Tighten the tables that harm more than an equal share of half the allowance."""
        harm_T = np.maximum(evidence.harm_T / evidence.loss, 0)
        fair = half / 2 / len(self.names)
        factor_T = np.where(harm_T > fair, np.sqrt(fair / np.maximum(harm_T, fair)), 1.0)
        if (factor_T == 1).all():  # no table by itself, all of them together
            factor_T[:] = math.sqrt(half / 2 / max(upper, half))
        factor_T = np.maximum(factor_T, _AT_ONCE)
        self.rows_T *= factor_T
        decisions = []
        for t in np.flatnonzero(factor_T < 1):
            why = f"harm {harm_T[t]:.4%} of up to {upper:.4%} in all, more than {half:.3%}"
            decisions.append(GuardDecision(evidence.step, "rows", (self.names[t],), float(factor_T[t]), why))
        return decisions

    def _loosen(
        self, direction: Literal["rows", "gradients"], factor_T: Floats, step: int, why: str
    ) -> list[GuardDecision]:
        new_T = np.minimum(factor_T * 1.5, self.loosest)
        changed = np.flatnonzero(new_T > factor_T * 1.01)
        if not len(changed):
            return []
        factor_T[:] = np.maximum(new_T, factor_T)
        return [GuardDecision(step, direction, tuple(self.names[t] for t in changed), 1.5, why)]

    def _reviewed(self, kind: Review, step: int, *, tightened: bool) -> None:
        """Plan the next review: soon after tightening, later and later while nothing is wrong."""
        if not tightened:
            self._interval[kind] *= _LOOKS_GROW if kind == "look" else _FORKS_GROW
        self._next[kind] = step + (1 if tightened else math.ceil(self._interval[kind]))
        self._passed[kind] = not tightened
        self.trusted = all(self._passed.values())


def _relative_bound(error: float) -> float:
    """Bound beside the root mean square of the values that has this error.

    Unbiased rounding errs by a sixth of the square of small bounds, and in proportion to large
    ones, which leave few values but zero and the bound; measured on gradients.
    """
    return max(math.sqrt(6 * error), error / 0.57)
