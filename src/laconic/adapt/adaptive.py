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

from laconic.adapt.compression import Compression
from laconic.adapt.decay import Decay
from laconic.adapt.economy import Economy
from laconic.adapt.guard import Direction, Guard, Losses
from laconic.adapt.policy import FixedPolicy
from laconic.adapt.settings import CompressionSettings
from laconic.codecs import BoundedRows, Cast
from laconic.codecs.batch import BlockCodec
from laconic.errors import FormatError
from laconic.exchange.exchange_plan import ExchangePlan, TableCodecs

__all__ = ["CAST_FROM", "AdaptivePolicy", "make_adaptive_policy", "may_be_cast"]

CAST_FROM = 2.0**-9
"""A bound, beside the range, from which float16 is taken to be finer."""

_UNKNOWN = 2.0**-10
"""Factor on a bound of which nothing is known at first: far from exact, and surely harmless."""

_FIRST_GRADIENTS = 0.5
"""Factor on the default bounds of gradients: what the first of them leave in rows is there for all
of the run, and nothing is known yet of what it will cost."""

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
        self.exact = FixedPolicy(ExchangePlan.exact(len(plan.tables), coded_ids=plan.coded_ids))
        """Policy that the economy measures with: exact communication."""
        self._made: tuple[Any, ExchangePlan] | None = None

    def plan_for(self, step: int) -> ExchangePlan:
        """Return the plan of a step."""
        if step < self.warmup_steps:
            return self.exact.plan
        guard, economy = self.guard, self.economy
        key = (
            self.multiplier(step),
            None if guard is None else (guard.rows_T.tobytes(), guard.gradients_T.tobytes()),
            None if economy is None else (economy.choice("forward"), economy.choice("backward")),
        )
        if self._made is None or self._made[0] != key:
            self._made = (key, self.make(key[0], economy))
        return self._made[1]

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
        self.losses.restore(state.get("losses", {}))
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
                    codecs.by_rows,
                )
            )
        return replace(self.base, tables=tuple(made))


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
    plan = settings.compression().policy(names).plan
    guard = None
    if settings.budget is not None:
        guard = Guard(tuple(names), settings.budget, _first_factors(plan, Compression().policy(names).plan))
    return AdaptivePolicy(
        plan,
        warmup_steps=settings.warmup,
        decay=None if settings.decay.kind == "none" else settings.decay,
        guard=guard,
        economy=Economy(tuple(names)) if settings.economy and ranks > 1 else None,
    )


def _first_factors(plan: ExchangePlan, harmless: ExchangePlan) -> dict[Direction, NDArray[np.float64]]:
    """Return the factors that make a plan's bounds harmless: those of defaults, where they compare.

    Absolute bounds do not: they begin as if exact, until evidence widens them.
    """
    rows = [_first_factor(*pair, 1.0) for pair in _pairs(plan, harmless, "forward")]
    gradients = [_first_factor(*pair, _FIRST_GRADIENTS) for pair in _pairs(plan, harmless, "backward")]
    return {"rows": np.array(rows), "gradients": np.array(gradients)}


def _pairs(
    plan: ExchangePlan, harmless: ExchangePlan, name: str
) -> list[tuple[BlockCodec | None, BlockCodec | None]]:
    both = zip(plan.tables, harmless.tables, strict=True)
    return [(getattr(ours, name), getattr(theirs, name)) for ours, theirs in both]


def _first_factor(codec: BlockCodec | None, harmless: BlockCodec | None, share: float) -> float:
    if not isinstance(codec, BoundedRows):
        return 1.0  # it has no bound, or one that is not rounded to as is known
    if not isinstance(harmless, BoundedRows) or codec.relative_to != harmless.relative_to:
        return _UNKNOWN
    return min(share * harmless.bound / codec.bound, 1.0)
