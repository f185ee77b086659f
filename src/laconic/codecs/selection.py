"""Selection: which entries of a matrix travel, as a list of places.

It encodes and decodes itself, takes values out of a matrix and puts them back. Entry
``(row, column)`` has place ``column * B + row``. A block lists the places in ascending order, as an
:class:`~laconic.codecs.id_list.IdList` (normative text: ``docs/formats/selection.md``). Places go
column by column because neurons differ in how often they are kept: a list of gaps within columns
has less entropy than one of gaps along rows.

Shape legend: ``B`` rows, ``D`` columns, ``K`` entries that travel.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

from laconic import kernels
from laconic.errors import FormatError

__all__ = ["Selection", "has_rows"]


def has_rows(x_BD: NDArray[np.float32]) -> bool:
    """Whether entries of a row are neighbors in memory, and rows are apart."""
    rows, cols = x_BD.shape
    near, apart = cols <= 1 or x_BD.strides[1] == 4, rows <= 1 or x_BD.strides[0] >= 4 * cols
    return (near and apart) or x_BD.size == 0


Bytes = NDArray[np.uint8]
Floats = NDArray[np.float32]
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Selection:
    """Entries of a matrix of B rows and D columns."""

    rows: int
    cols: int
    places_K: Ints | None
    """Ascending; None: all entries, whose block is empty."""
    _found: dict[int, Ints] = field(default_factory=dict, init=False, repr=False)
    """Places in memory, by the length of rows there.

    They are computed once for both directions: gradients are taken from where activations were put.
    """

    @property
    def count(self) -> int:
        """How many entries travel."""
        return self.rows * self.cols if self.places_K is None else len(self.places_K)

    def encode(self) -> Bytes:
        """Return the block."""
        if self.places_K is None or not len(self.places_K):
            return np.empty(0, np.uint8)
        out, offsets = np.empty(8 * self.count + 16, np.uint8), np.empty(2, np.int64)
        kernels.active().encode_ids(np.array([self.count]), self.places_K, out, offsets, 1)
        return out[: offsets[1]]

    @classmethod
    def decode(cls, block: Bytes, rows: int, cols: int, count: int) -> Selection:
        """Read the block of ``count`` entries; ``FormatError`` if it is not one."""
        if not 0 <= count <= rows * cols:
            raise FormatError(f"selection: expected 0 to {rows * cols} entries, got {count}")
        if not len(block):
            if count not in (0, rows * cols):
                raise FormatError(
                    f"selection: {count} of {rows * cols} entries travel, but no block says which"
                )
            return cls(rows, cols, None if count else np.empty(0, np.int64))
        places_K = np.empty(count, np.int64)
        kernels.active().decode_ids(np.array([count]), block, np.array([0, len(block)]), places_K, 1)
        inside = count == 0 or (places_K[0] >= 0 and places_K[-1] < rows * cols)
        if not inside or not (places_K[1:] > places_K[:-1]).all():
            raise FormatError(f"selection: expected ascending places below {rows * cols}, got others")
        return cls(rows, cols, places_K)

    def take(self, x_BD: Floats) -> Floats:
        """Return the values of the entries that travel, in the order of their places."""
        if self.places_K is None:
            return x_BD.reshape(-1)
        memory, index_K = self._memory(x_BD if has_rows(x_BD) else np.ascontiguousarray(x_BD))
        return memory.take(index_K)

    def spread(self, values_K: Floats) -> Floats:
        """Return the matrix with these values in their places and 0 elsewhere."""
        if self.places_K is None:
            return values_K.reshape(self.rows, self.cols)
        x_BD = np.zeros((self.rows, self.cols), np.float32)
        self._put(values_K, x_BD)
        return x_BD

    def spread_into(self, values_K: Floats, x_BD: Floats) -> None:
        """Fill a matrix, which may be some columns of a larger one, as ``spread`` does."""
        if self.places_K is None:
            x_BD[:] = values_K.reshape(self.rows, self.cols)
            return
        x_BD[:] = 0
        self._put(values_K, x_BD)

    def add_to(self, values_K: Floats, x_BD: Floats) -> None:
        """Add what ``spread`` would return to a matrix."""
        if self.places_K is None:
            x_BD += values_K.reshape(self.rows, self.cols)
            return
        memory, index_K = self._memory(x_BD)
        memory[index_K] += values_K  # no place is there twice

    def _put(self, values_K: Floats, x_BD: Floats) -> None:
        memory, index_K = self._memory(x_BD)
        memory[index_K] = values_K

    def _memory(self, x_BD: Floats) -> tuple[Floats, Ints]:
        """Return a matrix's memory from its first entry to its last, and the places in it."""
        assert self.places_K is not None, "asked only where some entries stay"
        assert has_rows(x_BD), "made here, or looked at before"
        stride = x_BD.strides[0] // 4 if self.rows > 1 else self.cols
        if stride not in self._found:
            columns_K = self.places_K // max(self.rows, 1)
            self._found[stride] = (self.places_K - columns_K * self.rows) * stride + columns_K
        words = (self.rows - 1) * stride + self.cols if x_BD.size else 0
        return as_strided(x_BD, (words,), (4,)), self._found[stride]
