"""Quantize: float32 to integer codes, every code checked against the bound.

All arithmetic on values is float32, every operation rounded on its own (no fused multiply-add)::

    v     = clamp(x * inverse, -2^22, 2^22)       NaN goes to -2^22
    code  = clamp(round(v) - base, smallest, largest)
    back  = float32(code + base) * step           the one rounding that decoding has
    fails = not |x - back| < bound                NaN and infinities fail by themselves

``round`` is to nearest, half to even; dithered, it is ``floor(v + u)`` with ``u`` in [0, 1) from a
hash of seed and index. The comparison is strict because ``|x - back|`` is itself rounded: rounding
is monotone, so a true error above ``bound`` cannot round below it.

Shapes: ``N`` values of the block, in row-major order.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

CODE_LIMIT = 4194304.0
"""2^22: beyond it float32 has no half steps."""

_ROUNDER = 12582912.0  # 1.5 * 2^23: adding it rounds half to even
_32_BITS = 0xFFFFFFFF
_64_BITS = 0xFFFFFFFFFFFFFFFF


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """How a block is laid on the integers; floats are float32 values."""

    step: float
    """Distance of two neighboring codes."""
    inverse: float
    """``1 / step`` in float32."""
    bound: float
    """Largest error allowed, rounded down to float32."""
    base: int = 0
    """Added to a code before it is multiplied by ``step``."""
    low_bits: int = 0
    """Codes have ``8 + low_bits`` bits, and a sign among them."""
    dither_seed: int | None = None
    """Stochastic rounding from this seed; None: rounding to nearest."""

    @property
    def smallest(self) -> int:
        """Smallest code."""
        return -(128 << self.low_bits)

    @property
    def largest(self) -> int:
        """Largest code."""
        return (128 << self.low_bits) - 1


def nearest_code(x_N: Tensor, inverse: float) -> Tensor:
    """Codes of finite values on the whole grid, int64."""
    v = (x_N * inverse).clamp(-CODE_LIMIT, CODE_LIMIT)
    return ((v + _ROUNDER) - _ROUNDER).to(torch.int64)


def quantize(x_N: Tensor, grid: Grid) -> tuple[Tensor, Tensor]:
    """Codes (int64) and the indices whose code misses the bound; those have code 0."""
    v = x_N * grid.inverse
    v = torch.where(v > -CODE_LIMIT, v, -CODE_LIMIT)
    v = torch.where(v < CODE_LIMIT, v, CODE_LIMIT)
    if grid.dither_seed is None:
        v = (v + _ROUNDER) - _ROUNDER
    else:
        v = torch.floor(v + dither(len(x_N), grid.dither_seed))
    codes = (v.to(torch.int64) - grid.base).clamp(grid.smallest, grid.largest)
    fails = ~((x_N - dequantize(codes, grid.step, grid.base)).abs() < grid.bound)
    return codes.masked_fill(fails, 0), fails.nonzero().flatten()


def dequantize(codes_N: Tensor, step: float, base: int) -> Tensor:
    """Return the value of every code."""
    return (codes_N + base).to(torch.float32) * step


def dither(n: int, seed: int) -> Tensor:
    """``u`` of the indices 0..n-1: multiples of 2^-24 in [0, 1)."""
    key = _splitmix(seed)
    h = torch.arange(n, dtype=torch.int64) + (key & _32_BITS) & _32_BITS
    h = (h ^ h >> 16) * 0x7FEB352D & _32_BITS
    h = (h ^ h >> 15 ^ key >> 32) * 0x846CA68B & _32_BITS
    return ((h ^ h >> 16) >> 8).to(torch.float32) * 2.0**-24


def _splitmix(seed: int) -> int:
    z = seed + 0x9E3779B97F4A7C15 & _64_BITS
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & _64_BITS
    z = (z ^ z >> 27) * 0x94D049BB133111EB & _64_BITS
    return z ^ z >> 31
