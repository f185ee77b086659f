"""Bit rows: one bit for each entry of a matrix says whether it was chosen.

A row has whole bytes: column ``d`` is bit ``d % 8`` of byte ``d // 8``, and bits past the last
column are 0. Values are row by row. Which entries are chosen is the choice of ``threshold_rows``.

Shapes: ``B`` rows, ``D`` columns.
"""

from __future__ import annotations

import numpy as np

from laconic.errors import FormatError
from laconic.kernels.reference.blocks.batch import Array, check
from laconic.kernels.reference.rows.threshold_rows import choose

_MOST = 2**32 - 1


def choose_bits(x_BD: Array, keep: float, method: int, bits: Array, values: Array) -> int:
    """Fill ``bits`` and the first K of ``values``, and return K."""
    _check_matrix(x_BD)
    check(0 < keep <= 1, "choose_bits: keep must be above 0 and at most 1")
    check(method in (0, 1), "choose_bits: method must be 0 or 1")
    _check_room(bits, *x_BD.shape)
    check(len(values) >= x_BD.size, "choose_bits: values need room for every entry")
    kept_BD = choose(x_BD, keep, method)
    bits[:] = np.packbits(kept_BD, axis=1, bitorder="little").reshape(-1)
    count = int(kept_BD.sum())
    values[:count] = x_BD[kept_BD]
    return count


def count_bits(bits: Array, rows: int, cols: int) -> int:
    """Return how many bits are set."""
    check(rows * cols <= _MOST, "bits: more than 2^32 - 1 entries")
    _check_room(bits, rows, cols)
    return int(_mask(bits, rows, cols).sum())


def take_bits(bits: Array, x_BD: Array, values: Array) -> None:
    """Fill ``values``."""
    values[:] = x_BD[_checked(bits, x_BD, values)]


def put_bits(bits: Array, values: Array, x_BD: Array) -> None:
    """Fill ``x_BD``."""
    kept_BD = _checked(bits, x_BD, values)
    x_BD[:] = 0
    x_BD[kept_BD] = values


def add_bits(bits: Array, values: Array, x_BD: Array) -> None:
    """Add to ``x_BD``."""
    x_BD[_checked(bits, x_BD, values)] += values


def _checked(bits: Array, x_BD: Array, values: Array) -> Array:
    """Return the mask of bits that belong to these values of this matrix."""
    _check_matrix(x_BD)
    _check_room(bits, *x_BD.shape)
    kept_BD = _mask(bits, *x_BD.shape)
    check(int(kept_BD.sum()) == len(values), "values: expected one for each bit that is set")
    return kept_BD


def _check_matrix(x_BD: Array) -> None:
    rows, cols = x_BD.shape
    check(x_BD.size <= _MOST, "bits: more than 2^32 - 1 entries")
    if not x_BD.size:
        return
    check(cols <= 1 or x_BD.strides[1] == 4, "x: expected the entries of a row to be neighbors")
    check(rows <= 1 or x_BD.strides[0] >= 4 * cols, "x: expected rows that lie apart")


def _check_room(bits: Array, rows: int, cols: int) -> None:
    check(len(bits) == rows * -(-cols // 8), "bits: expected a bit for each entry, rows of whole bytes")


def _mask(bits: Array, rows: int, cols: int) -> Array:
    kept = np.unpackbits(bits.reshape(rows, -(-cols // 8)), axis=1, bitorder="little")
    if kept[:, cols:].any():
        raise FormatError("bits: set past the last column")
    mask: Array = kept[:, :cols].astype(bool)
    return mask
