"""What a sum should be, and whether one is exact.

A sum is exact where it has the same bits on all ranks, and every entry is within a millionth of ``|x0| + |x1| + ...`` of
the sum in float64. Rounding in float32 costs at most ``ranks - 1`` times 6e-8 of that, whatever the order, so
that gloo's ring passes too; a rounded or missing entry does not. Shape legend: ``W`` words.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

__all__ = ["Truth"]

Floats = NDArray[np.float32]
_RELATIVE = 1e-6


@dataclass(frozen=True, slots=True, eq=False)
class Truth:
    """Bounds of every entry of the sum."""

    low_W: Tensor
    high_W: Tensor

    @classmethod
    def of(cls, parts: Iterable[Floats]) -> Truth:
        """Sum what all ranks have."""
        total_W = size_W = torch.zeros((), dtype=torch.float64)
        for part_W in map(torch.from_numpy, parts):
            total_W, size_W = total_W + part_W, size_W + part_W.abs()
        return cls.around(total_W, size_W)

    @classmethod
    def around(cls, total_W: Tensor, size_W: Tensor) -> Truth:
        """Allow for rounding; both in float64, ``size_W`` being the sum of absolute values."""
        slack_W = _RELATIVE * size_W
        return cls((total_W - slack_W).float(), (total_W + slack_W).float())

    def allows(self, total_W: Tensor) -> bool:
        """Whether every entry is near enough; NaN never is."""
        return bool((total_W >= self.low_W).all()) and bool((total_W <= self.high_W).all())
