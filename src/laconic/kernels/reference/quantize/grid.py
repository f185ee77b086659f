"""From a bound to a grid: the step, and where on the integers the codes lie.

The step is twice the bound (the bound itself if dithered), a little less so that float32 rounding
rarely misses the bound. Codes are bytes around zero where the block's values allow it; otherwise
they are centered on the median, with as many low bits as make a sample cheapest.

Shapes: ``N`` values of the block.

The choice of a form looks at every value of a small block, and at runs of a large one: 1024
neighbors from each multiple of ``1024 * ceil(n / most)`` on.

Squares are summed in an order that vector instructions can follow, so that all kernels get the same
bits. Lane ``j`` of eight sums the squares of ``x[j], x[j + 8], ...``. Then neighbors are added in
pairs, ``((0 + 1) + (2 + 3)) + ((4 + 5) + (6 + 7))``, in the type of the values.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from enum import Enum

import torch
from torch import Tensor

from laconic.kernels.reference.quantize.quantize import Grid, nearest_code
from laconic.kernels.reference.sequence.coding import count_symbols
from laconic.kernels.reference.sequence.huffman import entropy_q16

RUN = 1024


def sample(x_N: Tensor, most: int) -> Tensor:
    """All of ``x``, or about ``most`` of its values if it has more."""
    n = len(x_N)
    if n <= most:
        return x_N
    stride = RUN * -(-n // most)
    return torch.cat([x_N[start : start + RUN] for start in range(0, n, stride)])


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


_RANGE_ALL = 1 << 18  # values up to which an absolute bound's block is measured as a whole
_SAMPLE = 4096
_MAX_LOW_BITS = 8
_PATCH_BITS = 64  # what an escaped value costs, roughly
_SHRINK = 1.0 - 2.0**-12
_FLOAT_MAX = torch.finfo(torch.float32).max


class Relative(Enum):
    """What a bound is a share of, over the block's finite values."""

    NO = 0
    TO_RANGE = 1
    """max - min"""
    TO_RMS = 2
    """The root of the mean square."""


@dataclass(frozen=True, slots=True)
class BoundSpec:
    """How far a decoded value may be from the original."""

    bound: float
    relative: Relative = Relative.NO
    """What the bound is a share of."""
    dithered: bool = False
    seed: int = 0
    """Seed of the dither, below 2^64."""


def choose_grid(x_N: Tensor, spec: BoundSpec) -> Grid | None:
    """Grid for a block, or None if no step can honor the bound."""
    seen = sample(x_N, _RANGE_ALL) if spec.relative is Relative.NO else x_N
    finite = seen[torch.isfinite(seen)]
    if not len(finite):
        return None
    low, high = float(finite.min()), float(finite.max())
    bound = spec.bound
    if spec.relative is not Relative.NO:
        bound *= high - low if spec.relative is Relative.TO_RANGE else root_mean_square(x_N)
    step = _round_down((1.0 if spec.dithered else 2.0) * bound * _SHRINK)
    if not step > 0 or not _round_down(bound) > 0:
        return None
    inverse = float(1.0 / torch.tensor(step, dtype=torch.float32))
    if inverse == float("inf"):
        return None
    seed = spec.seed if spec.dithered else None
    grid = Grid(step=step, inverse=inverse, bound=_round_down(bound), dither_seed=seed)
    ends = nearest_code(torch.tensor([low, high]), inverse)
    if ends[0] >= -127 and ends[1] <= 126:  # a code to spare on either side for the dither
        return grid
    return _fit_window(x_N, grid)


def _round_down(x: float) -> float:
    """Largest float32 that is not above ``x`` >= 0."""
    if x >= _FLOAT_MAX:
        return _FLOAT_MAX
    nearest = torch.tensor(x, dtype=torch.float64).to(torch.float32)
    if float(nearest) > x:
        nearest = torch.nextafter(nearest, torch.tensor(-torch.inf))
    return float(nearest)


def _fit_window(x_N: Tensor, grid: Grid) -> Grid:
    """Put the median at code 0, and choose the number of raw low bits by the cost of a sample."""
    n = len(x_N)
    count = min(n, _SAMPLE)
    seen = x_N[: count * (n // count) : n // count]
    codes = nearest_code(seen[torch.isfinite(seen)], grid.inverse)
    if not len(codes):
        return grid
    base = int(codes.sort().values[len(codes) // 2])
    costs = []
    for low_bits in range(_MAX_LOW_BITS + 1):
        cost, outside = _window_cost(codes - base, low_bits)
        costs.append(cost)
        if not outside:  # more low bits only make the others' code coarser
            break
    return replace(grid, base=base, low_bits=costs.index(min(costs)))


def _window_cost(codes: Tensor, low_bits: int) -> tuple[int, int]:
    """Cost, in 2^-16 bits, of codes around 0 with this many low bits."""
    high = (codes >> low_bits) + 128
    inside = high[(high >= 0) & (high <= 255)]
    outside = len(codes) - len(inside)
    return entropy_q16(count_symbols(inside)) + (low_bits * len(codes) + _PATCH_BITS * outside << 16), outside
