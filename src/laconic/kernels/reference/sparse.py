"""Tensors that are mostly zero: where their words are, and the words themselves; and sums of such tensors.

A tensor is cut into chunks of 32,768 words, a chunk into units of 1 to 64 neighbouring words. A unit with any
bit set is there, with all its words; -0.0 has one. The index of a tensor::

    units of chunk 0, 1, ...      uint16 each
    places of chunk 0, 1, ...     see ``positions``
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from laconic.errors import FormatError
from laconic.kernels.reference.batch import Array, check
from laconic.kernels.reference.positions import decode_positions, encode_positions, positions_bytes

__all__ = ["compact", "compact_large", "compact_sum", "pick", "place_sum", "sparse_index_room", "unite"]

CHUNK_WORDS = 32768
MOST_UNIT = 64

Bytes = NDArray[np.uint8]


def sparse_index_room(words: int, unit: int) -> int:
    """Most bytes of the index of a tensor."""
    _check_unit(unit)
    return -(-words // CHUNK_WORDS) * 3 + -(-words // unit) // 8 + 1


def compact(x: Array, bounds: Array, unit: int, index: Array, values: Array, sizes: Array) -> None:
    """Find what is there in each segment of x."""
    _check_unit(unit)
    _check_bounds(bounds, len(x))
    check(sizes.shape == (len(bounds) - 1, 2), "sizes: expected two numbers for each segment")
    check(len(values) >= len(x), "values: expected room for all of x")
    index_at = values_at = 0
    for s, (begin, end) in enumerate(pairwise(bounds.tolist())):
        segment = x[begin:end]
        there = _units(segment.view(f"u{segment.itemsize}") != 0, unit)
        sizes[s] = _write(segment, there, unit, index[index_at:], values[values_at:])
        index_at, values_at = index_at + int(sizes[s, 0]), values_at + int(sizes[s, 1])


def compact_large(
    gradient: Array,
    memory: Array,
    bounds: Array,
    thresholds: Array,
    index: Array,
    values: Array,
    counts: Array,
) -> tuple[int, int]:
    """Add the gradient to the memory, and take out what is large."""
    _check_bounds(bounds, len(gradient))
    check(len(thresholds) + 1 == len(bounds), "thresholds: expected one for each layer")
    check(len(counts) == len(thresholds), "counts: expected one for each layer")
    check(bool((thresholds >= 0).all()), "thresholds: expected numbers of at least 0")
    check(len(memory) == len(gradient), "memory: expected as many values as the gradient has")
    with np.errstate(all="ignore"):
        memory += gradient
        gradient[:] = 0
        large = ~(np.abs(memory) < np.repeat(thresholds, np.diff(bounds)))
    written = _write(memory, large, 1, index, values)
    memory[large] = 0
    counts[:] = [large[start:end].sum() for start, end in pairwise(bounds.tolist())]
    return written


def place_sum(
    index: Array, index_bounds: Array, values: Array, value_bounds: Array, unit: int, out: Array
) -> None:
    """Set entries that any part has to the sum."""
    sums, there = _sum(index, index_bounds, values, value_bounds, len(out), unit)
    words = np.repeat(there, unit)[: len(out)]
    out[words] = sums[words]


def compact_sum(
    index: Array,
    index_bounds: Array,
    values: Array,
    value_bounds: Array,
    words: int,
    unit: int,
    index_out: Array,
    values_out: Array,
) -> tuple[int, int]:
    """Write the sum as a tensor of its own."""
    sums, there = _sum(index, index_bounds, values, value_bounds, words, unit)
    return _write(sums, there, unit, index_out, values_out)


def unite(index: Array, bounds: Array, words: int, unit: int, index_out: Array) -> tuple[int, int]:
    """Write the index of the units that any part has."""
    _check_unit(unit)
    _check_bounds(bounds, len(index))
    there = np.zeros(-(-words // unit), bool)
    for begin, end in pairwise(bounds.tolist()):
        there |= _read_index(index[begin:end], words, unit)
    return _write(np.zeros(words, np.int32), there, unit, index_out, np.empty(words, np.int32))


def pick(index: Array, x: Array, unit: int, values: Array) -> int:
    """Copy the words that an index says."""
    _check_unit(unit)
    picked = x[np.repeat(_read_index(index, len(x), unit), unit)[: len(x)]]
    values[: len(picked)] = picked
    return len(picked)


def _units(words: NDArray[np.bool_], unit: int) -> NDArray[np.bool_]:
    """Units of which any word is there; the last one may be cut."""
    padded = np.append(words, np.zeros(-len(words) % unit, bool))
    return np.logical_or.reduce(padded.reshape(-1, unit), axis=1)  # type: ignore[no-any-return]


def _chunks(words: int, unit: int) -> Iterator[tuple[int, int, int]]:
    """First word, words and units of every chunk."""
    for first in range(0, words, CHUNK_WORDS):
        here = min(CHUNK_WORDS, words - first)
        yield first, here, -(-here // unit)


def _write(x: Array, there: NDArray[np.bool_], unit: int, index: Array, values: Array) -> tuple[int, int]:
    counts, places = [], []
    for first, _, units in _chunks(len(x), unit):
        at = np.flatnonzero(there[first // unit : first // unit + units])
        counts.append(len(at))
        places.append(encode_positions(at, units))
    head = np.array(counts, "<u2").view(np.uint8)
    written = np.concatenate([head, *places])
    kept = x[np.repeat(there, unit)[: len(x)]]
    index[: len(written)] = written
    values[: len(kept)] = kept
    return len(written), len(kept)


def _sum(
    index: Array, index_bounds: Array, values: Array, value_bounds: Array, words: int, unit: int
) -> tuple[Array, NDArray[np.bool_]]:
    """Sum the parts in their order, from +0; and say which units any has."""
    _check_unit(unit)
    _check_bounds(index_bounds, len(index))
    _check_bounds(value_bounds, len(values))
    check(len(index_bounds) == len(value_bounds), "bounds: expected as many parts of index and values")
    sums, any_there = np.zeros(words, values.dtype), np.zeros(-(-words // unit), bool)
    for part in range(len(index_bounds) - 1):
        there = _read_index(index[index_bounds[part] : index_bounds[part + 1]], words, unit)
        at = np.flatnonzero(np.repeat(there, unit)[:words])
        own = values[value_bounds[part] : value_bounds[part + 1]]
        if len(own) != len(at):
            raise FormatError(f"values: the index says {len(at)}, there are {len(own)}")
        with np.errstate(all="ignore"):
            sums[at] += own
        any_there |= there
    return sums, any_there


def _read_index(index: Bytes, words: int, unit: int) -> NDArray[np.bool_]:
    chunks = list(_chunks(words, unit))
    at = 2 * len(chunks)
    if len(index) < at:
        raise FormatError(f"index: needs {at} bytes, there are {len(index)}")
    there = np.zeros(-(-words // unit), bool)
    for (first, _, units), taken in zip(chunks, index[:at].view("<u2").tolist(), strict=True):
        if taken > units:
            raise FormatError(f"index: a chunk of {taken} units has {units} places")
        size = positions_bytes(units, taken)
        if at + size > len(index):
            raise FormatError(f"index: needs {at + size} bytes, there are {len(index)}")
        there[first // unit + decode_positions(index[at : at + size], units, taken)] = True
        at += size
    if at != len(index):
        raise FormatError(f"index: {len(index) - at} bytes after its end")
    return there


def _check_unit(unit: int) -> None:
    check(1 <= unit <= MOST_UNIT and unit & (unit - 1) == 0, "unit: expected 1, 2, 4, ... or 64")


def _check_bounds(bounds: Array, end: int) -> None:
    check(len(bounds) >= 1 and bounds[0] == 0, "bounds: expected to begin with 0")
    check(bool((np.diff(bounds) >= 0).all()), "bounds: expected to ascend")
    check(int(bounds[-1]) == end, "bounds: expected to end where the array does")
