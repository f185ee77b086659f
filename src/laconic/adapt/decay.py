"""Decay of error bounds by the clock: a table's bound is wide at first and its own after ``steps`` steps.

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
from dataclasses import dataclass
from typing import Literal, get_args

from laconic.errors import ConfigError

__all__ = ["Decay", "DecayKind"]

DecayKind = Literal["none", "step", "linear", "log", "constant"]

# Equal levels from k down to 1. Each distinct multiplier is a new exchange plan on every rank, so one that crept
# down at every step would cost a plan a step; this way a whole run pays for at most 64.
_LEVELS = 64


@dataclass(frozen=True, slots=True)
class Decay:
    """What a table's bound is multiplied with, step by step."""

    kind: DecayKind

    k: float = 2.0
    """Multiplier of step 0."""

    steps: int = 0
    """Steps until the multiplier is 1; 0: it always is."""

    def __post_init__(self) -> None:
        if self.kind not in get_args(DecayKind):
            raise ConfigError(
                f"decay.kind: expected one of {', '.join(get_args(DecayKind))}, got {self.kind!r}"
            )
        if not 1 <= self.k < math.inf:
            raise ConfigError(
                f"decay.k: expected a finite number >= 1, got {self.k!r}; 1 leaves bounds alone"
            )
        if self.steps < 0:
            raise ConfigError(f"decay.steps: expected at least 0, got {self.steps!r}; 0 is no decay")

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
