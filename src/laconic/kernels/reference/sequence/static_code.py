"""Codes that need no table on the wire: products of one digit's distribution.

========  ====================================  =================================================
shape     digits are                            weight of a digit at distance d from the center
========  ====================================  =================================================
ranked    most frequent first, the center is 0  r^d, r = exp(-1/s), s = 2^(level/2 - 3)
Laplace   around the middle digit               the same
normal    around the middle digit               r^(d d), r = exp(-1/(2 s s)), s = 2^(level/2 - 1.5)
========  ====================================  =================================================

Sixteen levels each, from narrow to wide. All arithmetic is on integers in units of 2^-32, every
product rounded down; the two tables below are the only place where an exponential was computed.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from functools import cache

from laconic.kernels.reference.sequence.bits import digit_bits
from laconic.kernels.reference.sequence.huffman import (
    Decoder,
    Lengths,
    canonical_codes,
    code_lengths,
    make_decoder,
)

LEVELS = 16

_ONE = 0xFFFFFFFF
_NEGLIGIBLE = 20  # symbols below total / 2^20 are left out

_GEOMETRIC = (
    1440801, 15004422, 78665070, 253857248, 581260615, 1044178424, 1580030169, 2117713904,
    2605029347, 3015876649, 3344923893, 3599040369, 3790295335, 3931635878, 4034748382, 4109287957,
)  # fmt: skip
_GAUSSIAN = (
    78665070, 581260615, 1580030169, 2605029347, 3344923893, 3790295335, 4034748382, 4162825044,
    4228380000, 4261543595, 4278222805, 4286586875, 4290775039, 4292870656, 4293918848, 4294443040,
)  # fmt: skip


class Shape(IntEnum):
    """How a static code's weights fall."""

    RANKED = 0
    LAPLACE = 1
    NORMAL = 2


@dataclass(frozen=True, slots=True)
class StaticCode:
    """One of the 4 x 3 x 16 codes that both ends know."""

    lengths: Lengths
    codes: list[str]
    decoder: Decoder


def _scale(a: int, b: int) -> int:
    return a * b >> 32


def _weights(shape: Shape, level: int) -> list[int]:
    """Weight of a digit by its distance from the center."""
    ratio = _GAUSSIAN[level] if shape == Shape.NORMAL else _GEOMETRIC[level]
    growth = _scale(ratio, ratio) if shape == Shape.NORMAL else _ONE + 1
    weight, weights = _ONE, []
    for _ in range(257):
        weights.append(weight)
        weight = _scale(weight, ratio)
        ratio = _scale(ratio, growth)
    return weights


def _distances(log_group: int, shape: Shape) -> list[int]:
    """Distance of every digit from the center."""
    digits = 1 << digit_bits(log_group)
    center = 0 if shape == Shape.RANKED else digits // 2
    return [abs(digit - center) for digit in range(digits)]


@cache
def mean_distances_q8(log_group: int, shape: Shape) -> list[int]:
    """Return the mean distance of a digit from its center, times 256, by level."""
    means = []
    for level in range(LEVELS):
        weights = _weights(shape, level)
        distances = _distances(log_group, shape)
        moment = sum(weights[distance] * distance for distance in distances)
        means.append((moment << 8) // sum(weights[distance] for distance in distances))
    return means


@cache
def static_code(log_group: int, shape: Shape, level: int) -> StaticCode:
    """Make one code from the product of its digits' weights."""
    weights = _weights(shape, level)
    digit_weights = [weights[distance] for distance in _distances(log_group, shape)]
    width = digit_bits(log_group)
    counts = []
    for symbol in range(256):
        weight = _ONE
        for k in range(1 << log_group):
            weight = _scale(weight, digit_weights[symbol >> k * width & (1 << width) - 1])
        counts.append(weight)
    least = sum(counts) >> _NEGLIGIBLE
    lengths = code_lengths([count if count >= least else 0 for count in counts])
    return StaticCode(lengths, canonical_codes(lengths), make_decoder(lengths))
