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

import math
from dataclasses import dataclass
from math import prod
from typing import ClassVar, Literal

from laconic.codecs.batch import BlockCodec
from laconic.errors import ConfigError
from laconic.kernels.blocks import DITHERED, RELATIVE, RMS_RELATIVE, BlockSpec, Kind

__all__ = ["Bounded", "BoundedRows"]


def check_bound(bound: float, where: str) -> None:
    """Raise unless ``bound`` is a positive finite number."""
    if isinstance(bound, bool) or not isinstance(bound, (int, float)):
        raise ConfigError(f"{where}.bound: expected a number, got {bound!r}")
    if not (math.isfinite(bound) and bound > 0):
        raise ConfigError(f"{where}.bound: expected a positive finite number, got {bound!r}")


def check_relative(relative: object, where: str) -> None:
    """Raise unless ``relative`` is what ``BoundedRows`` knows."""
    if relative is not False and relative is not True and relative != "rms":
        raise ConfigError(f"{where}.relative: expected False, True or 'rms', got {relative!r}")


def check_seed(seed: int | None, where: str) -> None:
    """Raise unless ``seed`` is None or fits 64 bits."""
    if seed is None:
        return
    if isinstance(seed, bool) or not isinstance(seed, int) or not -(2**63) <= seed < 2**64:
        raise ConfigError(
            f"{where}.dither: expected an integer seed of at most 64 bits or None, got {seed!r}"
        )


def check_window(window: int, where: str) -> None:
    """Raise unless ``window`` is 1..255, what one byte of distance can name."""
    if isinstance(window, bool) or not isinstance(window, int) or not 1 <= window <= 255:
        raise ConfigError(f"{where}.window: expected 1..255 rows, got {window!r}")


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
