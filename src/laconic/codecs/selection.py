"""Selection: which entries of a matrix travel; its bytes, and the way of values out of the matrix and back.

Entry ``(row, column)`` has place ``column * B + row``; a block lists the places in ascending order, as an
:class:`~laconic.codecs.id_list.IdList` (normative text: ``docs/formats/selection.md``). Columns first, because
neurons differ in how often they are kept: gaps within a column tell less of each other than gaps along a row.

Shape legend: ``B`` rows, ``D`` columns, ``K`` entries that travel.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from laconic import kernels
from laconic.errors import FormatError

__all__ = ["Selection"]

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
        return x_BD.reshape(-1) if self.places_K is None else x_BD.reshape(-1)[self._index()]

    def spread(self, values_K: Floats) -> Floats:
        """Return the matrix with these values in their places and 0 elsewhere."""
        if self.places_K is None:
            return values_K.reshape(self.rows, self.cols)
        x = np.zeros(self.rows * self.cols, np.float32)
        x[self._index()] = values_K
        return x.reshape(self.rows, self.cols)

    def _index(self) -> Ints:
        """Where the entries are in a matrix that lies row by row in memory."""
        assert self.places_K is not None, "asked only where some entries stay"
        columns_K, rows_K = np.divmod(self.places_K, max(self.rows, 1))
        return rows_K * self.cols + columns_K
