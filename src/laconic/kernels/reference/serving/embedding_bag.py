"""Embedding bags from rows in few bits: restored row by row, summed in the order of the bag.

::

    0 fp32   float32[D]
    1 fp16   float16[D]
    2 int8   uint8[D]; float32 scale, float32 bias
    3 int4   two codes a byte, the first low; float16 scale, float16 bias
    4 int2   four codes a byte, the first lowest; float16 scale, float16 bias

A value is ``code * scale + bias``, every operation rounded to float32. A bag is
``((0 + v0) + v1) + ...``. If there are weights, each ``v`` is multiplied by its weight. For a mean
the sum is divided by the number of ids.

Shapes: ``T`` tables, ``R`` rows, ``W`` bytes of a row, ``D`` numbers of one, ``B`` samples, ``L``
ids, ``V`` vectors of a sample in ``out``; the last T of these are bags.
"""

from __future__ import annotations

import numpy as np

from laconic.kernels.operands import RowBags
from laconic.kernels.reference.blocks.batch import Array, check

_BITS = (32, 16, 8, 4, 2)
_PARAMETERS = (0, 0, 8, 4, 4)


class RowTables:
    """Tables of one model, each with its format."""

    def __init__(self, dim: int) -> None:
        self.dim = dim
        self.tables: list[tuple[Array, int]] = []

    def add(self, rows_RW: Array, format: int) -> None:
        """Take one more."""
        check(0 <= format <= 4, "RowTables.add: format must be 0 to 4")
        width = (self.dim * _BITS[format] + 7) // 8 + _PARAMETERS[format]
        check(rows_RW.shape[1] == width, "RowTables.add: rows have the wrong size")
        self.tables.append((rows_RW, format))

    def share(self, other: RowTables, table: int) -> None:
        """Take one that another has."""
        check(table < len(other.tables), "RowTables.share: no such table")
        check(self.dim == other.dim, "RowTables.share: tables of another dimension")
        self.tables.append(other.tables[table])


def embedding_bags(
    tables: RowTables,
    bags: RowBags,
    unknown_T: Array | None,
    out_BVD: Array,
    first: int,
    threads: int = 1,
) -> int:
    """Fill ``out``; or return the place of the first id that no table row answers."""
    ids_L, offsets, weights_L, mean = bags
    samples, count, dim = len(out_BVD), len(tables.tables), tables.dim
    check(out_BVD.shape[1:] == (first + count, dim), "embedding_bags: out has the wrong shape")
    entries = len(offsets) == count * samples + 1
    check(entries, "embedding_bags: offsets must have tables * samples + 1 entries")
    check(
        weights_L is None or len(weights_L) == len(ids_L), "embedding_bags: expected one weight for every id"
    )
    check(weights_L is None or not mean, "embedding_bags: a weighted mean is not defined")
    each = unknown_T is None or len(unknown_T) == count
    check(each, "embedding_bags: expected one unknown row for every table")
    check(
        offsets[0] >= 0 and bool((np.diff(offsets) >= 0).all()) and offsets[-1] <= len(ids_L),
        f"embedding_bags: offsets must ascend from 0 or more to at most {len(ids_L)}, the number of ids",
    )
    known_L = ids_L.copy()
    for t, (rows_RW, _) in enumerate(tables.tables):
        instead = -1 if unknown_T is None else int(unknown_T[t])
        for i in range(offsets[t * samples], offsets[(t + 1) * samples]):
            if not 0 <= ids_L[i] < len(rows_RW):
                if not 0 <= instead < len(rows_RW):
                    return i
                known_L[i] = instead
    for t, (rows_RW, format) in enumerate(tables.tables):
        for b in range(samples):
            begin, end = offsets[t * samples + b : t * samples + b + 2]
            sum_D = np.zeros(dim, np.float32)
            for i in range(begin, end):
                value_D = _restored(rows_RW[known_L[i]], format, dim)
                sum_D += value_D if weights_L is None else weights_L[i] * value_D
            if mean and end > begin:
                sum_D /= np.float32(end - begin)
            out_BVD[b, first + t] = sum_D
    return -1


def _restored(row_W: Array, format: int, dim: int) -> Array:
    if format < 2:
        return row_W.view((np.float32, np.float16)[format]).astype(np.float32)
    bits = _BITS[format]
    size = (dim * bits + 7) // 8
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    codes_D = ((row_W[:size, None] >> shifts) & (2**bits - 1)).reshape(-1)[:dim].astype(np.float32)
    scale, bias = row_W[size:].copy().view(np.float32 if format == 2 else np.float16).astype(np.float32)
    value_D: Array = codes_D * scale + bias
    return value_D
