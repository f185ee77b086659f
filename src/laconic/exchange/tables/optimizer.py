"""Optimizers of embedding rows: one update per distinct row, by the sum of its gradients."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from laconic.errors import ConfigError

__all__ = ["SGD", "RowOptimizer", "RowwiseAdagrad"]


@dataclass(frozen=True, slots=True)
class SGD:
    """Stochastic gradient descent: ``w -= lr * g``.

    >>> laconic.SGD(0.5)
    SGD(lr=0.5)
    """

    code: ClassVar[int] = 0
    has_state: ClassVar[bool] = False
    eps: ClassVar[float] = 0.0

    lr: float = 0.1
    """Learning rate."""

    def __post_init__(self) -> None:
        _check_lr(self.lr)


@dataclass(frozen=True, slots=True)
class RowwiseAdagrad:
    """Adagrad with one state ``s`` per row: ``s += mean(g * g); w -= lr * g / (sqrt(s) + eps)``.

    >>> laconic.RowwiseAdagrad(0.05)
    RowwiseAdagrad(lr=0.05, eps=1e-08)
    """

    code: ClassVar[int] = 1
    has_state: ClassVar[bool] = True

    lr: float = 0.02
    """Learning rate."""

    eps: float = 1e-8
    """Keeps the first step finite."""

    def __post_init__(self) -> None:
        _check_lr(self.lr)
        if not 0 < self.eps < 1:
            raise ConfigError(f"optimizer.eps: expected between 0 and 1, got {self.eps!r}")


RowOptimizer = SGD | RowwiseAdagrad


def _check_lr(lr: float) -> None:
    if not 0 <= lr < float("inf"):
        raise ConfigError(f"optimizer.lr: expected a finite learning rate of at least 0, got {lr!r}")
