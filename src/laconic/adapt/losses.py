"""Training losses in spans of doubling length: how fast does the loss still fall?"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

__all__ = ["Losses"]


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
        """Share of the loss that training took off while steps last doubled, per e-fold; 0 before it is known."""
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
