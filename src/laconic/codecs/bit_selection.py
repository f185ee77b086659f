"""BitSelection: which entries of a matrix travel, as one bit for each entry.

It is for fast links: one bit an entry is two to four times the bytes of
:class:`~laconic.codecs.selection.Selection`, or more if few entries travel, and takes a fifth of
its time. Nothing is sorted by columns, coded or looked up. Values are row by row (normative text:
``docs/formats/selection.md``).

Shape legend: ``B`` rows, ``D`` columns, ``K`` entries that travel.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from laconic import kernels
from laconic.codecs.selection import has_rows
from laconic.errors import FormatError

__all__ = ["BitSelection", "bits_bytes"]

Bytes = NDArray[np.uint8]
Floats = NDArray[np.float32]


def bits_bytes(rows: int, cols: int) -> int:
    """Return how long a block is: a row has whole bytes."""
    return rows * -(-cols // 8)


@dataclass(frozen=True, slots=True, eq=False)
class BitSelection:
    """Entries of a matrix of B rows and D columns."""

    rows: int
    cols: int
    count: int
    """How many entries travel."""
    bits: Bytes
    """The block."""

    def encode(self) -> Bytes:
        """Return the block."""
        return self.bits

    @classmethod
    def decode(cls, block: Bytes, rows: int, cols: int, count: int) -> BitSelection:
        """Read the block of ``count`` entries; ``FormatError`` if it is not one."""
        if len(block) != bits_bytes(rows, cols):
            raise FormatError(
                f"selection: expected {bits_bytes(rows, cols)} bytes for {rows} x {cols} bits, got {len(block)}"
            )
        found = kernels.active().count_bits(block, rows, cols)
        if found != count:
            raise FormatError(f"selection: expected {count} bits that are set, got {found}")
        return cls(rows, cols, count, block)

    def take(self, x_BD: Floats) -> Floats:
        """Return the values of the entries that travel, row by row."""
        values_K = np.empty(self.count, np.float32)
        kernels.active().take_bits(
            self.bits, x_BD if has_rows(x_BD) else np.ascontiguousarray(x_BD), values_K
        )
        return values_K

    def spread(self, values_K: Floats) -> Floats:
        """Return the matrix with these values in their places and 0 elsewhere."""
        x_BD = np.empty((self.rows, self.cols), np.float32)
        self.spread_into(values_K, x_BD)
        return x_BD

    def spread_into(self, values_K: Floats, x_BD: Floats) -> None:
        """Fill a matrix, which may be some columns of a larger one, as ``spread`` does."""
        kernels.active().put_bits(self.bits, values_K, x_BD)

    def add_to(self, values_K: Floats, x_BD: Floats) -> None:
        """Add what ``spread`` would return to a matrix."""
        kernels.active().add_bits(self.bits, values_K, x_BD)
