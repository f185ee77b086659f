"""Count sketch and index of a vector of integers, and the peeling that undoes them.

Normative text: ``docs/formats/sketch.md``.

Shapes: N entries, C cells, W words of the index, K positions of entries that may be there.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from laconic.errors import FormatError
from laconic.kernels.reference.blocks.batch import check
from laconic.kernels.sketch_layout import SketchLayout, mix

__all__ = ["decode_sketch", "encode_sketch"]

Array = NDArray[Any]
_LOW = np.uint64(0xFFFFFFFF)
_U64 = np.uint64


def encode_sketch(layout: SketchLayout, x_N: Array, cells_C: Array, index_W: Array) -> int:
    """Fill cells and index; return the largest magnitude."""
    _expect_arrays(layout, x_N, cells_C, index_W)
    sums_C = _unsigned(cells_C)
    sums_C[:] = 0
    index_W[:] = 0
    (positions_K,) = np.nonzero(x_N)
    _add_to_index(layout, index_W, positions_K)
    values_K = x_N[positions_K].astype(np.int64).view(np.uint64).astype(sums_C.dtype)
    for cells_K in _cells_of(layout, positions_K):
        np.add.at(sums_C, cells_K, values_K)
    return max((abs(int(x_N.min())), abs(int(x_N.max())))) if len(x_N) else 0


def decode_sketch(layout: SketchLayout, cells_C: Array, index_W: Array, out_N: Array) -> int:
    """Fill ``out_N`` and return 0, or return how many entries could not be peeled."""
    _expect_arrays(layout, out_N, cells_C, index_W)
    positions_K = _candidates(layout, index_W)
    if len(positions_K) > layout.cells:
        return len(positions_K)
    places_3K = _cells_of(layout, positions_K)
    sums_C = _unsigned(cells_C).copy()
    values_K = np.zeros(len(positions_K), sums_C.dtype)
    left_K = np.arange(len(positions_K))
    while len(left_K):
        taken = np.concatenate([cells_K[left_K] for cells_K in places_3K])
        counts_C = np.bincount(taken, minlength=layout.cells)
        alone_K = np.zeros(len(left_K), bool)
        for cells_K in places_3K:  # an entry that is alone in several cells may take its value from any
            alone = counts_C[cells_K[left_K]] == 1
            values_K[left_K[alone]] = sums_C[cells_K[left_K[alone]]]
            alone_K |= alone
        peeled_K, left_K = left_K[alone_K], left_K[~alone_K]
        if not len(peeled_K):
            return len(left_K)
        for cells_K in places_3K:
            np.subtract.at(sums_C, cells_K[peeled_K], values_K[peeled_K])
    if sums_C.any():
        raise FormatError("cells: no entries of the index add up to them")
    out_N[:] = 0
    out_N[positions_K] = values_K.view(out_N.dtype)
    return 0


def _cells_of(layout: SketchLayout, positions_K: Array) -> list[Array]:
    """Cells of each position: one in each of three neighboring segments."""
    if layout.segments == 0:
        return [positions_K]
    length = _U64(layout.length)
    h_K = _mix(positions_K.astype(np.uint64) + _U64(layout.key))
    g_K = (h_K ^ h_K >> _U64(29)) * _U64(0x9E3779B97F4A7C15)
    start_K = (g_K >> _U64(32)) * _U64(layout.segments) >> _U64(32)
    offsets_3K = (h_K & _LOW, h_K >> _U64(32), g_K & _LOW)
    return [
        ((start_K + _U64(j)) * length + (offset_K * length >> _U64(32))).astype(np.int64)
        for j, offset_K in enumerate(offsets_3K)
    ]


def _mix(h_K: Array) -> Array:
    h_K = (h_K ^ h_K >> _U64(33)) * _U64(0xFF51AFD7ED558CCD)
    h_K = (h_K ^ h_K >> _U64(33)) * _U64(0xC4CEB9FE1A85EC53)
    mixed_K: Array = h_K ^ h_K >> _U64(33)
    return mixed_K


# ---- index --------------------------------------------------------------------------------------


def _add_to_index(layout: SketchLayout, index_W: Array, positions_K: Array) -> None:
    if not layout.probes:
        np.bitwise_or.at(index_W, positions_K // 32, np.uint32(1) << (positions_K % 32).astype(np.uint32))
    for p in range(layout.probes):
        np.bitwise_or.at(index_W, *_probe(layout, p, positions_K.astype(np.uint32)))


def _candidates(layout: SketchLayout, index_W: Array) -> Array:
    """Positions that the index knows, ascending."""
    if not layout.probes:
        bits = np.unpackbits(index_W.view(np.uint8), bitorder="little")
        if bits[layout.size :].any():
            raise FormatError("index: bits beyond the last entry are set")
        return np.nonzero(bits)[0]
    positions_K = np.arange(layout.size, dtype=np.uint32)
    for p in range(layout.probes):
        words_K, bits_K = _probe(layout, p, positions_K)
        positions_K = positions_K[index_W[words_K] & bits_K == bits_K]
    return positions_K.astype(np.int64)


def _probe(layout: SketchLayout, probe: int, positions_K: Array) -> tuple[Array, Array]:
    """Return the filter's word that a probe reads for each position, and its three bits there."""
    hash_K = positions_K + np.uint32(mix((layout.key + ~probe) & (2**64 - 1)) & 0xFFFFFFFF)
    hash_K = (hash_K ^ hash_K >> np.uint32(16)) * np.uint32(0x85EBCA6B)
    hash_K = (hash_K ^ hash_K >> np.uint32(13)) * np.uint32(0xC2B2AE35)
    hash_K ^= hash_K >> np.uint32(16)
    chosen_K = hash_K * np.uint32(0x9E3779B1)
    words_K = (hash_K.astype(np.uint64) * _U64(layout.words) >> _U64(32)).astype(np.int64)
    one, five = np.uint32(1), np.uint32(31)
    bits_K = one << (chosen_K >> np.uint32(27))
    for shift in (22, 17):
        bits_K |= one << (chosen_K >> np.uint32(shift) & five)
    return words_K, bits_K


# ---- arguments ----------------------------------------------------------------------------------


def _unsigned(cells_C: Array) -> Array:
    """Return the same memory as unsigned integers, whose sums wrap by definition."""
    return cells_C.view(np.uint32 if cells_C.dtype == np.int32 else np.uint64)


def _expect_arrays(layout: SketchLayout, entries_N: Array, cells_C: Array, index_W: Array) -> None:
    integers = (np.int32, np.int64)
    if entries_N.dtype not in integers or cells_C.dtype not in integers or index_W.dtype != np.uint32:
        raise TypeError("sketch: expected entries and cells of int32 or int64, and an index of uint32")
    check(len(entries_N) == layout.size, "x or out does not have as many entries as the layout")
    check(len(cells_C) == layout.cells, "cells does not have as many cells as the layout")
    check(len(index_W) == layout.words, "index does not have as many words as the layout")
