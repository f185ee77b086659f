"""The adaptive policy: a plan's bounds, scaled by the clock, by the guard, and by the economy.

``plan_for`` is a function of the step and of decisions that all ranks make alike, between steps. It
returns the same object until something changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from laconic.adapt.decay import Decay
from laconic.adapt.economy import Economy
from laconic.adapt.guard import Guard, Losses
from laconic.adapt.policy import FixedPolicy
from laconic.adapt.settings import CompressionSettings
from laconic.codecs import BoundedRows, Cast
from laconic.codecs.batch import BlockCodec
from laconic.errors import FormatError
from laconic.exchange.exchange_plan import ExchangePlan, TableCodecs

__all__ = ["CAST_FROM", "AdaptivePolicy", "make_adaptive_policy", "may_be_cast"]

CAST_FROM = 2.0**-9
"""A bound, beside the range, from which float16 is taken to be finer."""

_GONE = {"decay": "narrowed bounds by a closed loop", "axes": "rounded rows along principal axes"}


class AdaptivePolicy:
    """Hands out the plan of the moment."""

    def __init__(
        self,
        plan: ExchangePlan,
        *,
        warmup_steps: int = 0,
        decay: Decay | None = None,
        guard: Guard | None = None,
        economy: Economy | None = None,
    ) -> None:
        self.base, self.warmup_steps = plan, warmup_steps
        self.decay, self.guard, self.economy = decay, guard, economy
        self.losses = Losses()
        """Losses of training, as far as anybody asked for them."""
        self.exact = FixedPolicy(ExchangePlan.exact(len(plan.tables), coded_ids=plan.coded_ids))
        """Policy that reviews compare with: exact communication."""
        self.candidate = _CandidatePolicy(self)
        """Policy that would be in force if the guard trusted it."""

    def plan_for(self, step: int) -> ExchangePlan:
        """Return the plan of a step."""
        if step < self.warmup_steps or (self.guard is not None and not self.guard.trusted):
            return self.exact.plan
        return self.candidate.plan_for(step)

    def fully_compressed_plan(self, step: int) -> ExchangePlan:
        """Return the plan that compresses every table that it may: the economy chooses from it."""
        return self.make(self.multiplier(step), None)

    def multiplier(self, step: int) -> float:
        """Return what the decay multiplies the bounds of rows with at a step."""
        return 1.0 if self.decay is None else self.decay.multiplier(step)

    def state(self) -> dict[str, Any]:
        """Return what a checkpoint needs, as JSON."""
        state: dict[str, Any] = {"losses": self.losses.state()}
        if self.guard is not None:
            state["guard"] = self.guard.state()
        if self.economy is not None:
            state["economy"] = self.economy.state()
        return state

    def restore(self, state: dict[str, Any]) -> None:
        """Take back what ``state`` returned; parts that one side lacks begin anew."""
        for part, what in _GONE.items():
            if part in state:
                raise FormatError(
                    f"checkpoint: its run {what}, which is gone; train anew, or resume with the version that wrote it"
                )
        if "losses" in state:
            self.losses.restore(state["losses"])
        if self.guard is not None and "guard" in state:
            self.guard.restore(state["guard"])
        if self.economy is not None and "economy" in state:
            self.economy.restore(state["economy"])

    def make(self, multiplier: float, economy: Economy | None) -> ExchangePlan:
        """Return the plan with bounds of rows times ``multiplier`` and the economy's choices."""
        tables = len(self.base.tables)
        rows_T, gradients_T = np.full(tables, multiplier), np.ones(tables)
        exact: dict[str, NDArray[np.bool_]] = {
            "forward": np.zeros(tables, bool),
            "backward": np.zeros(tables, bool),
        }
        if self.guard is not None:
            rows_T = rows_T * self.guard.rows_T
            gradients_T = gradients_T * self.guard.gradients_T
            exact = {"forward": self.guard.exact_T("rows"), "backward": self.guard.exact_T("gradients")}
        forward, backward = (
            economy.choice(direction) if economy is not None else ("bounded",) * tables
            for direction in ("forward", "backward")
        )
        made = []
        for t, codecs in enumerate(self.base.tables):
            made.append(
                TableCodecs(
                    _scaled(codecs.forward, float(rows_T[t]), "exact" if exact["forward"][t] else forward[t]),
                    _scaled(
                        codecs.backward,
                        float(gradients_T[t]),
                        "exact" if exact["backward"][t] else backward[t],
                    ),
                )
            )
        return replace(self.base, tables=tuple(made))


class _CandidatePolicy:
    """The plans of an adaptive policy, as if warm-up and doubt were over."""

    def __init__(self, policy: AdaptivePolicy) -> None:
        self._policy = policy
        self._made: tuple[Any, ExchangePlan] | None = None

    def plan_for(self, step: int) -> ExchangePlan:
        policy = self._policy
        guard, economy = policy.guard, policy.economy
        key = (
            policy.multiplier(step),
            None if guard is None else (guard.rows_T.tobytes(), guard.gradients_T.tobytes()),
            None if economy is None else (economy.choice("forward"), economy.choice("backward")),
        )
        if self._made is None or self._made[0] != key:
            self._made = (key, policy.make(key[0], economy))
        return self._made[1]


def _scaled(codec: BlockCodec | None, factor: float, choice: str) -> BlockCodec | None:
    """Return a codec with its bound scaled, or what replaces it; one without a bound stays."""
    if codec is None or choice == "exact":
        return None
    bound = getattr(codec, "bound", None)
    if bound is not None and factor != 1:
        codec = replace(codec, bound=bound * factor)  # type: ignore[type-var]
    # a cast was chosen for the bounds of its time; narrower ones may forbid it
    return Cast("fp16") if choice == "cast" and may_be_cast(codec) else codec


def may_be_cast(codec: BlockCodec | None) -> bool:
    """Whether float16 is taken to be finer than the codec's bound."""
    return isinstance(codec, BoundedRows) and codec.relative_to is not None and codec.bound >= CAST_FROM


def make_adaptive_policy(settings: CompressionSettings, names: Sequence[str], ranks: int) -> AdaptivePolicy:
    """Return the policy of the settings, with all that adapts it; one rank has no economy."""
    return AdaptivePolicy(
        settings.compression().policy(names).plan,
        warmup_steps=settings.warmup,
        decay=None if settings.decay.kind == "none" else settings.decay,
        guard=None if settings.budget is None else Guard(tuple(names), settings.budget),
        economy=Economy(tuple(names)) if settings.economy and ranks > 1 else None,
    )
