"""Optimizers of embedding rows: one update per distinct row, fused with the sum of its contributions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from laconic.errors import ConfigError

__all__ = ["RowOptimizer", "RowwiseAdagrad", "Sgd"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Sgd:
    """``w -= rate * g``."""

    code: ClassVar[int] = 0
    has_state: ClassVar[bool] = False
    epsilon: ClassVar[float] = 0.0

    rate: float = 0.1
    """Learning rate."""

    def __post_init__(self) -> None:
        _check_rate(self.rate)


@dataclass(frozen=True, kw_only=True, slots=True)
class RowwiseAdagrad:
    """``s += mean(g * g); w -= rate * g / (sqrt(s) + epsilon)`` with one ``s`` per row."""

    code: ClassVar[int] = 1
    has_state: ClassVar[bool] = True

    rate: float = 0.02
    """Learning rate."""

    epsilon: float = 1e-8
    """Keeps the first step finite."""

    def __post_init__(self) -> None:
        _check_rate(self.rate)
        if not 0 < self.epsilon < 1:
            raise ConfigError(f"optimizer.epsilon: expected between 0 and 1, got {self.epsilon!r}")


RowOptimizer = Sgd | RowwiseAdagrad


def _check_rate(rate: float) -> None:
    if not 0 <= rate < float("inf"):
        raise ConfigError(f"optimizer.rate: expected a finite learning rate of at least 0, got {rate!r}")
