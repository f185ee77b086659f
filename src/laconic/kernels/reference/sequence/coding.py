"""Which code a sequence gets: the cheapest one, by integer costs that every encoder computes alike.

Candidates come in a fixed order -- packed, static codes, a custom code -- and a later one is taken
only if it costs less. Not needed to read a sequence; needed to write the same bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum

import torch
from torch import Tensor

from laconic.kernels.reference.sequence.bits import digit_bits, group
from laconic.kernels.reference.sequence.huffman import Lengths, code_lengths, entropy_q16
from laconic.kernels.reference.sequence.static_code import LEVELS, Shape, mean_distances_q8, static_code

CHUNK_SYMBOLS = 32768
MANY_STREAMS = 384
"""Symbols from which a chunk has six streams."""


class Mode(IntEnum):
    """What stands in the lowest bits of a sequence's first byte."""

    PACKED = 0
    STATIC = 1
    CUSTOM = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Coding:
    """Which code, and what it will cost."""

    mode: Mode
    bits: int = 0
    """The cost, headers included."""
    width: int = 0
    """Packed: bits per value."""
    log_group: int = 0
    """Huffman: log2 of values per symbol."""
    low_bits: int = 0
    """Huffman: raw bits below the symbol."""
    shape: Shape = Shape.RANKED
    level: int = 0
    lengths: Lengths = ()
    """Custom: of the code."""


@dataclass(frozen=True, slots=True)
class Statistics:
    """What is known of the symbols that are to be coded."""

    histogram: Sequence[int]
    entropy_q16: int
    m: int
    """How many symbols there are."""
    mean_q8: int
    """Mean distance of a digit from its center, times 256."""

    @property
    def first(self) -> int:
        """Smallest symbol; 255 if there is none."""
        return next((s for s in range(256) if self.histogram[s]), 255)

    @property
    def last(self) -> int:
        """Largest symbol; 255 if there is none."""
        return next((s for s in range(255, -1, -1) if self.histogram[s]), 255)


def count_symbols(symbols_M: Tensor) -> list[int]:
    """How often each of 256 symbols occurs."""
    counts: list[int] = torch.bincount(symbols_M.to(torch.int64), minlength=256).tolist()
    return counts


def choose_coding(known: Statistics, log_group: int, low_bits: int, centered: bool) -> Coding:
    """Cheapest code; packed is considered for single values only.

    ``centered``: digits lie around the middle of their range, and packed values count from the
    smallest symbol; otherwise digits are ranked, and packed values count from zero.
    """
    best: Coding | None = None
    if log_group == 0:
        width = low_bits + (known.last - (known.first if centered else 0)).bit_length()
        best = Coding(mode=Mode.PACKED, bits=width * known.m + 8, width=width)
    fixed = 16 + _overhead_bits(known.m) + low_bits * known.m
    static = Coding(mode=Mode.STATIC, log_group=log_group, low_bits=low_bits)
    for shape in (Shape.LAPLACE, Shape.NORMAL) if centered else (Shape.RANKED,):
        for level, cost in _static_costs(known, log_group, shape):
            if best is None or cost + fixed < best.bits:
                best = replace(static, bits=cost + fixed, shape=shape, level=level)
    custom = _custom_code(known, fixed, None if best is None else best.bits)
    if custom is not None:
        lengths, cost = custom
        best = replace(static, mode=Mode.CUSTOM, bits=cost, lengths=lengths)
    assert best is not None
    return best


def _overhead_bits(m: int) -> int:
    """Bits of directory, stream sizes and padding, roughly."""
    return 16 if m < MANY_STREAMS else 64 + 128 * (m // CHUNK_SYMBOLS + 1)


def _cost_bits(histogram: Sequence[int], lengths: Lengths) -> int | None:
    """Bits under these lengths; None if a symbol that occurs has no code."""
    if any(count and not length for count, length in zip(histogram, lengths, strict=True)):
        return None
    return sum(count * length for count, length in zip(histogram, lengths, strict=True))


def _static_costs(known: Statistics, log_group: int, shape: Shape) -> Iterator[tuple[int, int]]:
    """Return level and cost of the two codes whose means enclose ours.

    If both lack a symbol, it is the next wider code that has all.
    """
    means = mean_distances_q8(log_group, shape)
    level = next((i for i in range(LEVELS - 1) if means[i] >= known.mean_q8), LEVELS - 1)
    covered = False
    for candidate in range(max(level - 1, 0), min(level + 1, LEVELS - 1) + 1):
        if candidate > level and covered:
            return
        cost = _cost_bits(known.histogram, static_code(log_group, shape, candidate).lengths)
        if cost is not None:
            covered = True
            yield candidate, cost


def _custom_code(known: Statistics, fixed: int, best: int | None) -> tuple[Lengths, int] | None:
    """Lengths and cost of a code made for this histogram, if it costs less than ``best``.

    The code is not made at all where entropy and table alone cost as much.
    """
    live = sum(count > 0 for count in known.histogram)
    table = 8 + known.last + 1 + 4 * max(live, 2) + fixed
    if best is not None and (known.entropy_q16 >> 16) + table >= best:
        return None
    lengths = code_lengths(with_two_symbols(known.histogram))
    cost = sum(count * length for count, length in zip(known.histogram, lengths, strict=True)) + table
    return None if best is not None and cost >= best else (lengths, cost)


def with_two_symbols(histogram: Sequence[int]) -> list[int]:
    """Return the counts, with a second symbol if only one occurs: a code needs two."""
    counts = list(histogram)
    if sum(count > 0 for count in counts) == 1:
        counts[1 if counts[0] else 0] = 1
    return counts


def choose_for_values(values_N: Tensor, limit: int) -> Coding:
    """Cheapest code for unsigned values below ``limit``.

    Tried: packed, as many values per symbol as fit, and one value per symbol; the last only where
    it can pay, since a one- or two-bit value has no cheaper code of its own.
    """
    n, width = len(values_N), (limit - 1).bit_length()
    low_bits = max(0, width - 8)
    most = next(g for g in (3, 2, 1, 0) if g == 0 or width <= digit_bits(g))
    mean_q8 = (int((values_N >> low_bits).sum()) << 8) // n if n else 0
    best = Coding(mode=Mode.PACKED, bits=width * n + 8, width=width)
    for log_group in (most, 0) if most == 1 else (most,):
        histogram = count_symbols(group(values_N >> low_bits, log_group))
        known = Statistics(histogram, entropy_q16(histogram), sum(histogram), mean_q8)
        coding = choose_coding(known, log_group, low_bits, centered=False)
        if coding.bits < best.bits:
            best = coding
    return best
