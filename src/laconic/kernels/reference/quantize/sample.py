"""Where a block is too large to look at every value before the choice of a form, runs of it are.

Runs of 1024 neighbors start at multiples of ``1024 * ceil(n / most)``.
"""

from __future__ import annotations

import torch
from torch import Tensor

RUN = 1024


def sample(x_N: Tensor, most: int) -> Tensor:
    """All of ``x``, or about ``most`` of its values if it has more."""
    n = len(x_N)
    if n <= most:
        return x_N
    stride = RUN * -(-n // most)
    return torch.cat([x_N[start : start + RUN] for start in range(0, n, stride)])
