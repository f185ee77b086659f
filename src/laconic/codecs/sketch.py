"""Sketch: lossless sums of sparse integer vectors, added while they are compressed.

A block has two parts and no header, so that anything that adds integers can add blocks: a peer, a
plain all-reduce, a switch (normative text: ``docs/formats/sketch.md``)::

    cells   int32 or int64, little-endian   each nonzero entry is in three; they add as integers
    reach   one more cell                   how large a sum can be; adds too
    index   uint32 words                    which entries are not zero; adds by bitwise or

**Decoding peels.** The index says which entries are in which cells. A cell with a single entry is
the value of that entry. Subtracting it from its other two cells leaves single entries there, and so
on. Whether this reaches all entries depends on the index, the number of cells and the seed alone.
If it stalls, decoding raises ``PeelingError``, and another seed may succeed.

**Exact.** Cells wrap modulo 2^32 (2^64), and so does peeling. So cells may overflow as long as no
*entry* of the sum does. ``reach`` is a bound on the entries of the sum that adds up like a cell, so
nobody needs to check anything on the way. A sum that might not fit is refused when it is decoded or
added; it is never wrapped. Sketches that estimate have random signs. This one has none, because it
never returns an estimate.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from itertools import pairwise
from math import prod
from typing import Any, ClassVar, Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from laconic import kernels
from laconic.codecs.matrix import block_bytes, checked_shape
from laconic.errors import ConfigError, FormatError, HeadroomError, PeelingError
from laconic.kernels.blocks import MAX_VALUES
from laconic.kernels.sketch_layout import SketchLayout

__all__ = ["CellType", "IndexForm", "Sketch", "cells_for"]


_ENOUGH = (
    (0, 3),
    (1, 12),
    (10, 90),
    (20, 140),
    (50, 260),
    (100, 410),
    (200, 650),
    (500, 1_200),
    (1_000, 1_890),
    (2_000, 3_000),
    (3_000, 3_960),
    (5_000, 6_500),
    (10_000, 12_800),
    (30_000, 37_700),
    (100_000, 124_500),
    (210_000, 260_400),
    (215_000, 263_000),
    (500_000, 592_500),
    (1_000_000, 1_165_000),
    (4_000_000, 4_560_000),
    (16_000_000, 18_080_000),
    (2**32, 2**32 * 113 // 100),
)
"""Nonzeros, and cells enough for them; between two of these a straight line."""

_MISTAKEN_PERCENT = 8
"""Positions that a Bloom filter takes for nonzeros, which need cells too."""


def cells_for(size: int, nonzeros: int) -> dict[str, int]:
    """Cells for each form of index that can be had, at most ``size``.

    One or two sketches in 1,000 stall, and fewer above 10,000 nonzeros. The numbers come from
    simulation: 10,000 nonzeros need 1.28 cells each, a million 1.165. Few nonzeros need more cells
    each, because two of them that share all three cells are enough to stall. Among sketches with
    ``n`` nonzeros and ``c n`` cells, one in ``2 c^3 n / 27`` has such a pair. From 215,000 nonzeros
    on, many segments (``kernels.sketch_layout``) need fewer cells. Everything is computed in
    integers, so that every rank gets the same numbers.
    """
    plain = min(size, _cells(nonzeros))
    mistaken = _cells(nonzeros + nonzeros * _MISTAKEN_PERCENT // 100 + 4)
    return {"bitmap": plain, "bloom": mistaken} if mistaken < size else {"bitmap": plain}


def _cells(nonzeros: int) -> int:
    for (low, cells_low), (high, cells_high) in pairwise(_ENOUGH):
        if nonzeros <= high:
            cells = cells_low + -(-(nonzeros - low) * (cells_high - cells_low) // (high - low))
            return -(-cells // 3) * 3  # three equal segments
    raise ValueError(f"more than 2^32 nonzeros: {nonzeros}")


CellType = Literal["int32", "int64"]
IndexForm = Literal["bitmap", "bloom"]

_MOST_REACH = 2**15 - 1


@dataclass(frozen=True, slots=True)
class Sketch:
    """Summable codec of integer vectors.

    Blocks of equal settings can be added, and all have ``nbytes`` bytes.

    >>> x, y = torch.zeros(1000, dtype=torch.int32), torch.zeros(1000, dtype=torch.int32)
    >>> x[10], y[10], y[999] = 3, 4, -5
    >>> sketch = laconic.Sketch.for_union(1000, nonzeros=2)
    >>> block = sketch.add(sketch.encode(x), sketch.encode(y))
    >>> torch.equal(sketch.decode(block, (1000,)), x + y)
    True
    >>> sketch.nbytes
    216
    """

    wire_id: ClassVar[int] = 8

    size: int
    """Number of entries of the tensor."""

    _: KW_ONLY

    cells: int
    """Number of cells for all three hashes together, as :meth:`for_union` chooses it.

    If there are as many cells as entries, nothing is hashed.
    """

    seed: int = 0
    """Seed of the hashes, 64 bits."""

    index: IndexForm = "bitmap"
    """"bitmap": one bit an entry. "bloom": a Bloom filter, which is smaller for very sparse tensors
    and slower to decode."""

    dtype: CellType = "int32"
    """Type of the cells."""

    def __post_init__(self) -> None:
        if not 0 <= self.size <= MAX_VALUES:
            raise ConfigError(f"sketch.size: expected 0..{MAX_VALUES}, got {self.size!r}")
        if self.cells != self.size and not 3 <= self.cells < self.size:
            raise ConfigError(
                f"sketch.cells: expected 3 or more and no more than the size of {self.size}, got {self.cells!r}"
            )
        if not 0 <= self.seed < 2**64:
            raise ConfigError(f"sketch.seed: expected 0..2^64-1, got {self.seed!r}")
        if self.index not in get_args(IndexForm):
            raise ConfigError(f"sketch.index: no such form {self.index!r} (known: bitmap, bloom)")
        if self.dtype not in get_args(CellType):
            raise ConfigError(f"sketch.dtype: no such type {self.dtype!r} (known: int32, int64)")
        if self.index == "bloom" and self.cells == self.size:
            raise ConfigError("sketch.index: as many cells as entries need no Bloom filter; use 'bitmap'")

    @classmethod
    def for_union(cls, size: int, nonzeros: int, *, seed: int = 0, dtype: CellType = "int32") -> Sketch:
        """Choose cells and index for sums in which up to ``nonzeros`` entries are in some summand.

        One or two sketches in 1,000 stall at that number (docs/formats/sketch.md). With a few per
        cent more entries every sketch stalls, so leave room if the number is an estimate. A Bloom
        filter is chosen if it saves a tenth of the bytes: looking up all entries takes time.
        """
        if not 0 <= nonzeros <= size:
            raise ConfigError(f"sketch: expected 0..{size} nonzeros, got {nonzeros!r}")
        cells = cells_for(size, nonzeros)
        bitmap = cls(size=size, cells=cells["bitmap"], seed=seed, dtype=dtype)
        if "bloom" not in cells:
            return bitmap
        bloom = cls(size=size, cells=cells["bloom"], seed=seed, index="bloom", dtype=dtype)
        return bloom if 10 * bloom.nbytes <= 9 * bitmap.nbytes else bitmap

    @property
    def nbytes(self) -> int:
        """Size of every block."""
        return self._cell_type.itemsize * (self.cells + 1) + 4 * self._layout.words

    @property
    def limit(self) -> int:
        """Largest magnitude of an entry that a single tensor may have."""
        return _MOST_REACH * self._unit

    def check_headroom(self, largest: int, ranks: int) -> None:
        """Raise ``HeadroomError`` if a sum over ``ranks`` might not fit the cells.

        ``largest`` is the largest magnitude of an entry on any rank.
        """
        reach = ranks * self._reach_of(largest)
        if reach > _MOST_REACH:
            raise HeadroomError(
                f"sketch: entries up to {largest} of {ranks} ranks may add up to {reach * self._unit}, "
                f"{self.dtype} cells take {self.limit}; {self._remedy}"
            )

    def max_bytes(self, shape: tuple[int, ...]) -> int:
        """Return ``nbytes``: the size follows from the settings."""
        self._expect_shape(shape)
        return self.nbytes

    def cells_and_index(self, block: Tensor | NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.uint32]]:
        """Return views of a block for whoever adds it.

        Cells, with the reach behind them, add by sum; the index adds by bitwise or.
        """
        data = block.numpy() if isinstance(block, Tensor) else block
        self._expect_block(data)
        split = self._cell_type.itemsize * (self.cells + 1)
        if not data.flags.c_contiguous or data.ctypes.data % self._cell_type.itemsize:
            raise ConfigError(
                "sketch: expected a contiguous, aligned block, got parts of another; copy it first"
            )
        return data[:split].view(self._cell_type), data[split:].view("<u4")

    def encode(self, x: Tensor) -> Tensor:
        """Encode int32 or int64 of any shape, in row-major order.

        ``HeadroomError`` if an entry is beyond ``limit``.
        """
        values = _flat_integers(x)
        if values.numel() != self.size:
            raise ConfigError(f"sketch: expected {self.size} entries, got {values.numel()}")
        block = np.empty(self.nbytes, np.uint8)
        cells, index = self.cells_and_index(block)
        largest = kernels.active().encode_sketch(self._layout, values.numpy(), cells[:-1], index)
        if largest > self.limit:
            raise HeadroomError(
                f"sketch: expected entries up to {self.limit} for {self.dtype} cells, got one of {largest}; {self._remedy}"
            )
        cells[-1] = self._reach_of(largest)
        return torch.from_numpy(block)

    def add(self, a: Tensor, b: Tensor) -> Tensor:
        """Block of the sum; ``HeadroomError`` if one of its entries might not fit."""
        out = torch.empty_like(a)
        cells, index = self.cells_and_index(out)
        (cells_a, index_a), (cells_b, index_b) = self.cells_and_index(a), self.cells_and_index(b)
        self._expect_reach(int(cells_a[-1]) + int(cells_b[-1]))
        np.add(cells_a, cells_b, out=cells)
        np.bitwise_or(index_a, index_b, out=index)
        return out

    def decode(self, block: Tensor, shape: tuple[int, ...], dtype: torch.dtype = torch.int32) -> Tensor:
        """Return the exact sum, as int32 or int64.

        ``PeelingError``: peeling stalled. ``HeadroomError``: an entry might not have fitted the
        cells, or does not fit ``dtype``. ``FormatError``: no sum of tensors has this block.
        """
        if dtype not in (torch.int32, torch.int64):
            raise ConfigError(f"sketch: expected dtype torch.int32 or torch.int64, got {dtype}")
        shape = self._expect_shape(shape)
        data = block_bytes(block, "sketch").numpy()
        self._expect_block(data)
        if data.ctypes.data % self._cell_type.itemsize:
            data = data.copy()
        cells, index = self.cells_and_index(data)
        self._expect_reach(int(cells[-1]))
        out = np.empty(self.size, self._cell_type)
        left = kernels.active().decode_sketch(self._layout, cells[:-1], index, out)
        if left:
            raise PeelingError(
                f"sketch: peeling stalled with {left} entries left in {self.cells} cells; "
                "encode with another seed, or with more cells"
            )
        return _as_type(torch.from_numpy(out), dtype).view(shape)

    @property
    def _layout(self) -> SketchLayout:
        return SketchLayout.of(self.size, self.cells, self.seed, self.index == "bloom")

    @property
    def _cell_type(self) -> np.dtype[Any]:
        return np.dtype("<i4" if self.dtype == "int32" else "<i8")

    @property
    def _unit(self) -> int:
        """Unit of the reach: so coarse that the reach of 2^16 tensors adds up without wrapping."""
        return 2**16 if self.dtype == "int32" else 2**48

    @property
    def _remedy(self) -> str:
        step = "quantize with a larger step"
        return f"take dtype='int64' or {step}" if self.dtype == "int32" else step

    def _reach_of(self, largest: int) -> int:
        return -(-largest // self._unit)

    def _expect_reach(self, reach: int) -> None:
        if reach < 0:
            raise FormatError(f"reach: expected 0 or more, got {reach}")
        if reach > _MOST_REACH:
            raise HeadroomError(
                f"sketch: entries of the sum may reach {reach * self._unit}, {self.dtype} cells take "
                f"{self.limit}; {self._remedy}"
            )

    def _expect_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        shape = checked_shape(shape, "sketch")
        if prod(shape) != self.size:
            raise ConfigError(f"sketch: expected a shape of {self.size} entries, got {shape}")
        return shape

    def _expect_block(self, data: NDArray[Any]) -> None:
        if data.dtype != np.uint8 or data.ndim != 1:
            raise ConfigError(f"sketch: expected a block as 1-D uint8, got {data.ndim}-D {data.dtype}")
        if len(data) != self.nbytes:
            raise FormatError(f"block: expected {self.nbytes} bytes, got {len(data)}")


def _flat_integers(x: Tensor) -> Tensor:
    if not isinstance(x, Tensor) or x.dtype not in (torch.int32, torch.int64):
        kind = x.dtype if isinstance(x, Tensor) else type(x).__name__
        raise ConfigError(f"sketch: expected a tensor of int32 or int64, got {kind}; quantize it first")
    if not x.is_cpu or x.layout != torch.strided:
        raise ConfigError(
            f"sketch: expected a dense tensor on the CPU, got {x.layout} on {x.device}; use x.to_dense().cpu()"
        )
    return x.contiguous().view(-1)


def _as_type(x: Tensor, dtype: torch.dtype) -> Tensor:
    if x.dtype == torch.int64 and dtype == torch.int32 and x.numel():
        low, high = (int(extreme) for extreme in torch.aminmax(x))
        if low < -(2**31) or high >= 2**31:
            raise HeadroomError(
                f"sketch: expected entries within int32, got {low}..{high}; decode with dtype=torch.int64"
            )
    return x.to(dtype)
