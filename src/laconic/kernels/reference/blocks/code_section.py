"""The codes of a block on the wire: smallest code, a sequence of digits, and the outliers.

A code is ``smallest + digit``. Narrow codes (int8) may be grouped, so that a symbol holds two or
four digits; codes that no digit can express are outliers, and travel after the sequence with the
middle digit in their place. Wide codes (up to int16) are symbols of eight bits with raw bits below
them, and have no outliers::

    smallest code   signed varint
    digits          sequence
    outliers        varint, their number
                    fewer than 16: each, varint codes skipped since the last one, signed varint code
                    others: the skipped codes as numbers, then a sequence of 2 code or -2 code - 1

Shapes: ``N`` codes, ``M`` symbols.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import torch
from torch import Tensor

from laconic.kernels.reference.blocks.code_counts import FEW_OUTLIERS, CodeCounts, Grouping, choose_grouping
from laconic.kernels.reference.byte_io import Reader, Writer, expect
from laconic.kernels.reference.sequence.bits import group, pack_bits
from laconic.kernels.reference.sequence.coding import (
    Mode,
    Statistics,
    choose_coding,
    choose_for_values,
    count_symbols,
)
from laconic.kernels.reference.sequence.huffman import entropy_q16
from laconic.kernels.reference.sequence.numbers import choose_for_numbers, read_numbers, write_numbers
from laconic.kernels.reference.sequence.sequence import (
    SequenceReader,
    write_packed,
    write_symbols,
    write_values,
)


def write_narrow_codes(codes_N: Tensor, counts: CodeCounts, out: Writer) -> Mode:
    """Write codes of eight bits; the mode of their sequence decides the form of some blocks."""
    grouping = choose_grouping(counts)
    outside = (codes_N < grouping.minimum) | (codes_N >= grouping.minimum + grouping.width)
    outliers = outside.nonzero().flatten()
    digits = codes_N.masked_fill(outside, grouping.center) - grouping.minimum
    if grouping.sparse:
        out.signed_varint(grouping.minimum)
        write_packed(digits, 0, out)
        _write_outliers(outliers.tolist(), codes_N[outliers], out)
        return Mode.PACKED
    symbols = group(digits, grouping.log_group)
    coding = choose_coding(_statistics(symbols, counts, grouping), grouping.log_group, 0, centered=True)
    if coding.mode == Mode.PACKED:
        first = int(symbols.min())
        out.signed_varint(grouping.minimum + first)
        write_packed(symbols.to(torch.int64) - first, coding.width, out)
    else:
        out.signed_varint(grouping.minimum)
        write_symbols(coding, symbols, out)
    _write_outliers(outliers.tolist(), codes_N[outliers], out)
    return coding.mode


def _statistics(symbols_M: Tensor, counts: CodeCounts, grouping: Grouping) -> Statistics:
    """Count all symbols; distances are those of the codes that were seen, outliers included."""
    distance = sum(count * abs(code - grouping.center) for code, count in counts.items())
    histogram = count_symbols(symbols_M)
    return Statistics(histogram, entropy_q16(histogram), len(symbols_M), (distance << 8) // counts.counted)


def write_wide_codes(codes_N: Tensor, low_bits: int, out: Writer) -> Mode:
    """Write codes of ``8 + low_bits`` bits."""
    n, minimum = len(codes_N), -(128 << low_bits)
    symbols = codes_N - minimum >> low_bits
    histogram = count_symbols(symbols)
    mean_q8 = (int((symbols - 128).abs().sum()) << 8) // n
    known = Statistics(histogram, entropy_q16(histogram), n, mean_q8)
    coding = choose_coding(known, 0, low_bits, centered=True)
    if coding.mode == Mode.PACKED:
        smallest = minimum + (known.first << low_bits)
        out.signed_varint(smallest)
        write_packed(codes_N - smallest, coding.width, out)
    else:
        out.signed_varint(minimum)
        write_symbols(coding, symbols.to(torch.uint8), out)
        out.bytes(pack_bits(codes_N - minimum & (1 << low_bits) - 1, low_bits))
    out.varint(0)  # no outliers
    return coding.mode


def _write_outliers(indices: list[int], codes_K: Tensor, out: Writer) -> None:
    gaps = [index - before - 1 for before, index in pairwise([-1, *indices])]
    zigzag_K = torch.where(codes_K < 0, -2 * codes_K - 1, 2 * codes_K)
    out.varint(len(gaps))
    if len(gaps) < FEW_OUTLIERS:
        for gap, code in zip(gaps, zigzag_K.tolist(), strict=True):
            out.varint(gap)
            out.varint(code)
        return
    write_numbers(choose_for_numbers(gaps), gaps, out)
    write_values(choose_for_values(zigzag_K, 256), zigzag_K, out)


class CodeReader:
    """The code section of ``n`` codes, parsed; nothing is decoded yet."""

    def __init__(self, reader: Reader, n: int) -> None:
        self._minimum = reader.signed_varint("smallest code")
        self._sequence = sequence = SequenceReader(reader, n)
        expect(-32768 <= self._minimum <= 32767, "smallest code: outside int16")
        expect(sequence.width <= 16 and sequence.low_bits <= 8, "codes: wider than 16 bits")
        self._wide = sequence.low_bits > 0
        if self.packed:  # few bits may yet reach beyond int8
            self._wide = not -128 <= self._minimum <= 128 - (1 << sequence.width)
        expect(self._wide or -256 <= self._minimum <= 127, "smallest code: too far out for narrow codes")
        self._outliers = self._read_outliers(reader, n)

    @property
    def packed(self) -> bool:
        """Whether the sequence is packed."""
        return self._sequence.mode == Mode.PACKED

    def codes(self) -> Tensor:
        """All codes, int64."""
        half = 32768 if self._wide else 128
        codes = (self._sequence.all_values() + self._minimum + half) % (2 * half) - half
        if self._outliers:
            indices, outliers = torch.tensor(self._outliers).unbind(1)
            codes[indices] = outliers
        return codes

    def _read_outliers(self, reader: Reader, n: int) -> list[tuple[int, int]]:
        count = reader.varint("outliers")
        expect(
            count <= n and not (self._wide and count),
            "outliers: more than there are codes, or beside wide codes",
        )
        expect(count // 8 <= reader.left, "outliers: more than eight for every byte left")
        outliers: list[tuple[int, int]] = []
        for gap, zigzag in _read_few(reader, count) if count < FEW_OUTLIERS else _read_many(reader, count):
            index = gap if not outliers else outliers[-1][0] + 1 + gap
            expect(index < n, "outlier position: beyond the codes")
            expect(zigzag < 256, "outlier code: outside int8")
            outliers.append((index, zigzag >> 1 ^ -(zigzag & 1)))
        return outliers


def _read_few(reader: Reader, count: int) -> Iterator[tuple[int, int]]:
    following = 0
    for _ in range(count):
        gap = reader.varint("outlier position")
        reader.note(f"code {following + gap}")
        following += gap + 1
        zigzag = reader.varint("outlier code")
        reader.note(str(zigzag >> 1 ^ -(zigzag & 1)))
        yield gap, zigzag


def _read_many(reader: Reader, count: int) -> Iterator[tuple[int, int]]:
    part = reader.part
    reader.part = f"{part}: outlier positions" if part else "outlier positions"
    gaps = read_numbers(reader, count)
    reader.part = f"{part}: outlier codes" if part else "outlier codes"
    codes = SequenceReader(reader, count).values(256, "outlier code")
    reader.part = part
    return zip(gaps, codes.tolist(), strict=True)
