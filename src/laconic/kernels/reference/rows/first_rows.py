"""First values of rows: numpy's Philox generator, one for each chunk of a table's rows.

The generator of a chunk has the key ``(seed, table * 2^32 + chunk)`` and draws float32 numbers in
[0, 1), row after row. Philox counts its blocks of eight numbers, so that any row can be drawn
without those before it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["first_rows"]

Array = NDArray[Any]

_CHUNK = 1 << 16
_BLOCK = 8


def first_rows(out: Array, rows: Array, seed: int, table: int) -> None:
    """Fill ``out[i]`` with the numbers of row ``rows[i]``."""
    if len(out) != len(rows):
        raise ValueError("out must have as many rows as are asked for")
    for row in rows[(rows < 0) | (rows >= _CHUNK << 32)].tolist():
        raise ValueError(f"expected rows from 0 to 2^48 - 1, got {row}")
    dim = out.shape[1]
    for row, out_D in zip(rows.tolist(), out, strict=True):
        chunk, place = divmod(row, _CHUNK)
        block, skip = divmod(place * dim, _BLOCK)
        philox = np.random.Philox(key=np.array([seed, table << 32 | chunk], np.uint64)).advance(block)
        out_D[:] = np.random.Generator(philox).random(skip + dim, np.float32)[skip:]
