"""Decay: bounds that are wide at first and narrow by the clock.

The bound of step ``t`` is ``multiplier(t)`` times the final one. With ``x = t / steps``::

    multiplier = 1 + (k - 1) * share          k at step 0, 1 from ``steps`` on

    kind        share
    none        0
    constant    1
    step        1 - floor(10 x) / 10          ten plateaus
    linear      1 - x
    log         1 - ln(1 + (e - 1) x)         falls fastest at the start
"""

from __future__ import annotations

import math
from typing import Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from laconic.config import Settings

__all__ = ["Decay"]

# Equal levels from k down to 1. Each distinct multiplier is a new exchange plan on every rank, so
# one that changed at every step would cost a plan a step; this way a run pays for at most 64.
_LEVELS = 64


class Decay(Settings):
    """How the bounds of rows narrow in the course of training."""

    kind: Literal["none", "step", "linear", "log", "constant"] = "none"
    """Schedule of the multiplier."""

    k: float = Field(default=2.0, ge=1)
    """Multiplier of step 0."""

    steps: int = Field(default=0, ge=0)
    """Number of steps until the multiplier is 1."""

    @field_validator("kind", mode="before")
    @classmethod
    def _exists(cls, kind: Any) -> Any:
        if kind == "closed_loop":
            raise ValueError(
                "expected 'none', 'step', 'linear', 'log' or 'constant', got 'closed_loop', which is gone; "
                "a wider bound saves as much"
            )
        return kind

    @model_validator(mode="after")
    def _ends(self) -> Self:
        if self.kind != "none" and not self.steps:
            raise ValueError(
                f"expected steps > 0 where kind is {self.kind!r}, got 0; say at which step bounds are their own"
            )
        return self

    def multiplier(self, step: int) -> float:
        """Return the multiplier of a step, counted from 0; it never rises."""
        if self.kind == "none" or step >= self.steps:
            return 1.0
        if self.kind == "constant":
            return self.k
        if self.kind == "step":
            plateau = 10 * step // self.steps
            return 1 + (self.k - 1) * ((10 - plateau) / 10)
        passed = step / self.steps
        if self.kind == "log":
            passed = math.log1p(passed * (math.e - 1))
        # rounded up to a whole level: 1 is reached at the end and not before
        return 1 + (self.k - 1) * (math.ceil(_LEVELS * (1 - passed)) / _LEVELS)
