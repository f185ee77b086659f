"""The adaptive policy: a plan's bounds, scaled by the clock, by the guard, and by the economy.

``plan_for`` is a function of the step and of decisions that all ranks make alike, between steps. What it hands
out stays the same object until something changes.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from laconic.adapt.decay import Decay
from laconic.adapt.economy import Economy
from laconic.adapt.guard import Guard, Losses
from laconic.codecs import BoundedRows, Cast
from laconic.codecs.batch import BlockCodec
from laconic.errors import FormatError
from laconic.exchange.exchange_plan import ExchangePlan, TableCodecs

__all__ = ["CAST_FROM", "AdaptivePolicy", "may_be_cast"]

CAST_FROM = 2.0**-9
"""A bound, beside the range, from which float16 is taken to be finer."""

_GONE = {"decay": "narrowed bounds by a closed loop", "axes": "rounded rows along principal axes"}

Mode = Literal["normal", "candidate", "exact"]


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
        """Of training, as far as anybody asked for them."""
        self._exact = ExchangePlan.exact(len(plan.tables), coded_ids=plan.coded_ids)
        self._mode: Mode = "normal"
        self._made: tuple[Any, ExchangePlan] | None = None

    @contextmanager
    def trying(self, mode: Literal["candidate", "exact"]) -> Iterator[None]:
        """Hand out the plan that would be in force if it were trusted, or the exact one; for reviews."""
        self._mode = mode
        try:
            yield
        finally:
            self._mode = "normal"

    def plan_for(self, step: int) -> ExchangePlan:
        """Return the plan of a step."""
        if self._mode == "exact":
            return self._exact
        if self._mode == "normal" and (
            step < self.warmup_steps or (self.guard is not None and not self.guard.trusted)
        ):
            return self._exact
        key = (
            self.multiplier(step),
            None if self.guard is None else (self.guard.rows_T.tobytes(), self.guard.gradients_T.tobytes()),
            None
            if self.economy is None
            else (self.economy.choice("forward"), self.economy.choice("backward")),
        )
        if self._made is None or self._made[0] != key:
            self._made = (key, self._make(key[0], self.economy))
        return self._made[1]

    def uneconomical_plan(self, step: int) -> ExchangePlan:
        """Return the plan with every table compressed that may be: what the economy chooses from."""
        return self._make(self.multiplier(step), None)

    def multiplier(self, step: int) -> float:
        """Of rows' bounds at a step, by schedule."""
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

    def _make(self, multiplier: float, economy: Economy | None) -> ExchangePlan:
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


def _scaled(codec: BlockCodec | None, factor: float, choice: str) -> BlockCodec | None:
    """Return a codec with its bound scaled, or what stands in for it; what has no bound stays as it is."""
    if codec is None or choice == "exact":
        return None
    bound = getattr(codec, "bound", None)
    if bound is not None and factor != 1:
        codec = replace(codec, bound=bound * factor)  # type: ignore[type-var]
    # a cast was chosen for the bounds of its time; narrower ones may forbid it
    return Cast(dtype="fp16") if choice == "cast" and may_be_cast(codec) else codec


def may_be_cast(codec: BlockCodec | None) -> bool:
    """Whether float16 is taken to be finer than the codec's bound."""
    return isinstance(codec, BoundedRows) and bool(codec.relative) and codec.bound >= CAST_FROM
