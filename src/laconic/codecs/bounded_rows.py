"""BoundedRows: the workhorse for matrices of embedding rows.

Quantize every value within its bound, find equal rows over the whole block, entropy-code the
distinct rows and the references to them; per block the cheapest form wins, and the block says
which (normative text: ``docs/formats/bounded_rows.md``)::

    form            when
    0 constant      one value, or one code, everywhere
    1 stored        nothing pays, or no step can honor the bound
    2 packed        codes are as good as uniform
    3 entropy       rows do not repeat
    4 deduplicated  rows repeat: distinct rows once, then references

After the SC'24 method of dual-level adaptive compression; different here: de-duplication *and*
entropy coding instead of either, over the whole block instead of a window, Huffman codes over
groups of codes, fixed code families for blocks too small to carry a table, and a bound that is
checked for every value.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import ClassVar, Literal

from laconic.codecs.batch import BlockCodec
from laconic.codecs.bound import check_bound, check_relative, check_seed
from laconic.kernels.blocks import DITHERED, RELATIVE, RMS_RELATIVE, BlockSpec, Kind

__all__ = ["Bounded", "BoundedRows"]


@dataclass(frozen=True, kw_only=True, slots=True)
class BoundedRows(BlockCodec):
    """Error-bounded codec for float32 matrices of rows.

    Every finite value comes back within the bound, compared in float64. NaN stays NaN,
    infinities stay. What no code can represent within the bound is stored exactly.
    """

    wire_id: ClassVar[int] = 1

    bound: float = 1e-2
    """Largest absolute error allowed, in the unit of the data."""

    relative: bool | Literal["rms"] = False
    """True: the bound is a share of (max - min) of the block's finite values, as in the SC'24 paper.
    "rms": of the root of their mean square, which one outlier moves less."""

    dither: int | None = None
    """Seed of unbiased rounding: each value goes to one of its two neighbors on the grid with
    the probability that makes its mean exact. Same bound, about one bit more per value."""

    def __post_init__(self) -> None:
        check_bound(self.bound, "bounded_rows")
        check_relative(self.relative, "bounded_rows")
        check_seed(self.dither, "bounded_rows")

    def spec(self) -> BlockSpec:
        """Return what the kernels need to know."""
        relative = RMS_RELATIVE if self.relative == "rms" else RELATIVE if self.relative else 0
        dithered = DITHERED if self.dither is not None else 0
        return BlockSpec(Kind.ROWS, float(self.bound), relative | dithered, self.dither or 0)


@dataclass(frozen=True, kw_only=True, slots=True)
class Bounded(BoundedRows):
    """Error-bounded codec for flat tensors; settings and guarantee of ``BoundedRows``.

    The block is that of :class:`BoundedRows` for a matrix of one row: no de-duplication, everything else the
    same.
    """

    wire_id: ClassVar[int] = 2

    def matrix(self, shape: tuple[int, ...]) -> tuple[int, int]:
        """One row of all values."""
        return 1, prod(shape)
