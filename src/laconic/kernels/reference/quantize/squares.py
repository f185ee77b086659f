"""Squares: their sum in an order that vectors can follow, so that all kernels get the same bits.

Lane ``j`` of eight sums the squares of ``x[j], x[j + 8], ...``; then neighbors are added in pairs,
``((0 + 1) + (2 + 3)) + ((4 + 5) + (6 + 7))``. Arithmetic is in the type of the values.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

_LANES = 8


def sum_of_squares(x_N: Tensor) -> Tensor:
    """Sum of all squares, a tensor without dimensions."""
    lanes = x_N.new_zeros(_LANES)
    for eight in torch.nn.functional.pad(x_N * x_N, (0, -len(x_N) % _LANES)).view(-1, _LANES):
        lanes += eight
    while len(lanes) > 1:
        lanes = lanes[0::2] + lanes[1::2]
    return lanes[0]


def root_mean_square(x_N: Tensor) -> float:
    """RMS of the finite values, in float64; those that are not finite count as 0 in their lane."""
    finite = torch.isfinite(x_N)
    total = sum_of_squares(torch.where(finite, x_N, 0.0).to(torch.float64))
    return math.sqrt(float(total) / int(finite.sum()))
