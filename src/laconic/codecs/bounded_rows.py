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
from dataclasses import KW_ONLY, dataclass
from math import prod
from typing import ClassVar, Literal, get_args

from laconic.codecs.batch import BlockCodec
from laconic.errors import ConfigError
from laconic.kernels.blocks import DITHERED, RELATIVE, RMS_RELATIVE, BlockSpec, Kind

__all__ = ["Bounded", "BoundedRows", "RelativeTo", "Rounding"]

RelativeTo = Literal["range", "rms"]
Rounding = Literal["nearest", "unbiased"]

_RELATIVE_FLAGS = {None: 0, "range": RELATIVE, "rms": RMS_RELATIVE}


def check_bound(bound: float, where: str) -> None:
    """Raise unless ``bound`` is a positive finite number."""
    if isinstance(bound, bool) or not isinstance(bound, (int, float)):
        raise ConfigError(f"{where}.bound: expected a number, got {bound!r}")
    if not (math.isfinite(bound) and bound > 0):
        raise ConfigError(f"{where}.bound: expected a positive finite number, got {bound!r}")


def relative_flag(relative_to: RelativeTo | None, where: str) -> int:
    """Return the kernels' flag for what a bound is relative to; raise if there is none."""
    if isinstance(relative_to, str | None) and relative_to in _RELATIVE_FLAGS:
        return _RELATIVE_FLAGS[relative_to]
    raise ConfigError(f"{where}.relative_to: expected None, 'range' or 'rms', got {relative_to!r}")


def check_rounding(rounding: object, seed: object, where: str) -> None:
    """Raise unless the rounding is known and the seed is an integer that fits 64 bits."""
    if rounding not in get_args(Rounding):
        raise ConfigError(f"{where}.rounding: expected 'nearest' or 'unbiased', got {rounding!r}")
    if isinstance(seed, bool) or not isinstance(seed, int) or not -(2**63) <= seed < 2**64:
        raise ConfigError(f"{where}.seed: expected an integer of at most 64 bits, got {seed!r}")


def check_window(window: int, where: str) -> None:
    """Raise unless ``window`` is 1..255, what one byte of distance can name."""
    if isinstance(window, bool) or not isinstance(window, int) or not 1 <= window <= 255:
        raise ConfigError(f"{where}.window: expected 1..255 rows, got {window!r}")


@dataclass(frozen=True, slots=True)
class BoundedRows(BlockCodec):
    """Error-bounded codec for float32 matrices of rows.

    Every finite value comes back within the bound, compared in float64. NaN stays NaN,
    infinities stay. What no code can represent within the bound is stored exactly.

    >>> rows_RD = torch.tensor([[0.1, -2.0], [7.3, 4.0], [0.1, -2.0]])
    >>> codec = laconic.BoundedRows(0.01, relative_to="range")
    >>> again_RD = codec.decode(codec.encode(rows_RD), (3, 2))
    >>> bool((rows_RD - again_RD).abs().max() <= 0.01 * (7.3 + 2.0))
    True
    """

    wire_id: ClassVar[int] = 1

    bound: float = 1e-2
    """Largest absolute error: in the unit of the data, or a share of what it is relative to."""

    _: KW_ONLY

    relative_to: RelativeTo | None = None
    """None: the bound is absolute. "range": it is a share of (max - min) of the block's finite
    values, as in the SC'24 paper. "rms": a share of the root of their mean square, which one
    outlier moves less."""

    rounding: Rounding = "nearest"
    """"unbiased": each value goes to one of its two neighbors on the grid with the probability that
    makes its mean exact. The bound is the same; a value takes about one bit more."""

    seed: int = 0
    """Seed of unbiased rounding; rounding to the nearest does not read it."""

    def __post_init__(self) -> None:
        check_bound(self.bound, "bounded_rows")
        relative_flag(self.relative_to, "bounded_rows")
        check_rounding(self.rounding, self.seed, "bounded_rows")

    def spec(self) -> BlockSpec:
        """Return what the kernels need to know."""
        flags, bound = relative_flag(self.relative_to, "bounded_rows"), float(self.bound)
        if self.rounding == "nearest":
            return BlockSpec(Kind.ROWS, bound, flags)
        return BlockSpec(Kind.ROWS, bound, flags | DITHERED, self.seed)


@dataclass(frozen=True, slots=True)
class Bounded(BoundedRows):
    """Error-bounded codec for flat tensors; settings and guarantee of ``BoundedRows``.

    The block is that of :class:`BoundedRows` for a matrix of one row: no de-duplication,
    everything else the same.

    >>> codec = laconic.Bounded(0.5, relative_to="rms", rounding="unbiased", seed=7)
    >>> codec.decode(codec.encode(torch.zeros(5)), (5,))
    tensor([0., 0., 0., 0., 0.])
    """

    wire_id: ClassVar[int] = 2

    def matrix(self, shape: tuple[int, ...]) -> tuple[int, int]:
        """One row of all values."""
        return 1, prod(shape)
