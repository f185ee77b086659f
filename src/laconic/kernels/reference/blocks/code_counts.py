"""What the choice of a form rests on: how often each code occurs, and how codes become digits.

Narrow codes may share a symbol: two digits of four bits or four of two bits. That pays where codes
are close to their median. What lies outside the window of 16 or 4 codes is an outlier and travels
beside the digits; where nearly all codes are equal, everything else is an outlier and there are no
digits at all (sparse). Not needed to read a block; needed to write the same bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from torch import Tensor

from laconic.kernels.reference.quantize.grid import sample
from laconic.kernels.reference.sequence.bits import digit_bits
from laconic.kernels.reference.sequence.coding import count_symbols
from laconic.kernels.reference.sequence.huffman import entropy_q16

_COUNT_ALL = 1 << 13
FEW_OUTLIERS = 16
"""Below that many, each outlier is written by itself."""

_FEW_BITS = 24  # and costs about this much


@dataclass(frozen=True, slots=True)
class CodeCounts:
    """All codes of a small block, or runs of a large one; wide codes by their high part."""

    by_code: list[int]
    """Index: code + 128."""
    total: int
    """Codes of the block, seen or not."""
    low_bits: int

    @property
    def counted(self) -> int:
        """How many codes were seen."""
        return sum(self.by_code)

    @property
    def entropy_q16(self) -> int:
        """Bits of the codes that were seen, in 2^-16, low bits included."""
        return entropy_q16(self.by_code) + (self.low_bits * self.counted << 16)

    @property
    def mean_q16(self) -> int:
        """Bits of one code, in 2^-16."""
        return self.entropy_q16 // self.counted

    @property
    def estimated_bits(self) -> int:
        """Bits of all codes."""
        return self.mean_q16 * self.total >> 16

    def items(self) -> Iterator[tuple[int, int]]:
        """Codes that occur, ascending, with their counts."""
        return ((index - 128, count) for index, count in enumerate(self.by_code) if count)

    @property
    def median(self) -> int:
        """Smallest code that half of the codes do not exceed."""
        seen = 0
        for code, count in self.items():
            seen += count
            if 2 * seen >= self.counted:
                return code
        raise AssertionError("no codes")


@dataclass(frozen=True, slots=True)
class Grouping:
    """How narrow codes become digits: code - minimum, ``2^log_group`` to a symbol."""

    log_group: int
    minimum: int
    sparse: bool = False
    """No digits: codes are ``minimum`` or outliers."""

    @property
    def width(self) -> int:
        """How many codes are not outliers."""
        return 1 if self.sparse else 1 << digit_bits(self.log_group)

    @property
    def center(self) -> int:
        """Code that stands in for an outlier."""
        return self.minimum + self.width // 2


def count_codes(codes_N: Tensor, low_bits: int) -> CodeCounts:
    """Count codes, or what is above their low bits."""
    high = (sample(codes_N, _COUNT_ALL) >> low_bits) + 128
    return CodeCounts(count_symbols(high), len(codes_N), low_bits)


def choose_grouping(c: CodeCounts) -> Grouping:
    """Choose the cheapest of one, two, four and no digits to a symbol.

    Among equally cheap ones the order is two, four, one, none.
    """
    codes = [code for code, _ in c.items()]
    best = Grouping(0, -128)
    if c.counted == c.total and c.median - 128 <= codes[0] and codes[-1] <= c.median + 127:
        best = Grouping(0, c.median - 128)
    n, entropy = c.counted << 16, c.entropy_q16
    if entropy > 5 * n:  # groups hold at most four bits a code
        return best
    least = max(entropy, n) + (n >> 4)
    for log_group in (1, 2):
        grouping = Grouping(log_group, _choose_minimum(c, 1 << digit_bits(log_group)))
        cost = _cost_q16(c, grouping)
        if cost <= least:
            least, best = cost, grouping
    sparse = Grouping(0, c.median, sparse=True)
    return sparse if _cost_q16(c, sparse) < least else best


def _choose_minimum(c: CodeCounts, width: int) -> int:
    """Window around the median, or the first one that holds most codes if that loses much."""
    codes = [code for code, _ in c.items()]

    def mass(first: int) -> int:
        return sum(c.by_code[first + 128 : first + 128 + width])

    centered = max(-128, min(c.median - width // 2, 128 - width))
    best = max(range(max(codes[0] - width + 1, -128), min(codes[-1], 128 - width) + 1), key=mass)
    return centered if mass(best) <= mass(centered) + (c.counted >> 10) else best


def _cost_q16(c: CodeCounts, g: Grouping) -> int:
    """Return the cost of digits, at least a bit a symbol, and of outliers' places and codes."""
    first = g.minimum + 128
    inside = c.by_code[first : first + g.width]
    others = c.by_code[:first] + c.by_code[first + g.width :]
    outside, n = sum(others), c.counted << 16
    inside[g.width // 2] += outside
    cost = 0
    if not g.sparse:
        cost = max(entropy_q16(inside), n >> g.log_group) + (n >> 4 + g.log_group)
    if outside * c.total < FEW_OUTLIERS * c.counted:
        return cost + (_FEW_BITS * outside << 16)
    return cost + entropy_q16([outside, c.counted - outside]) + entropy_q16(others) + (outside << 14)
