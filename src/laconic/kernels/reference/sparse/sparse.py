"""Tensors that are mostly zero, as an index and the words that it names; and sums of such tensors.

A tensor is cut into chunks of 32,768 words, a chunk into units of 1 to 64 neighboring words. A unit
with any bit set is there, with all its words; -0.0 has a bit set. The index of a tensor::

    units of chunk 0, 1, ...      uint16 each
    places of chunk 0, 1, ...     see ``positions``
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from laconic.kernels.operands import LayerThresholds, SparseParts
from laconic.kernels.reference.blocks.batch import Array, check
from laconic.kernels.reference.byte_io import Reader, expect
from laconic.kernels.reference.sparse.positions import decode_positions, encode_positions, positions_bytes

__all__ = ["compact", "compact_large", "compact_sum", "place_sum", "sparse_index_room"]

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
    layers: LayerThresholds,
    index: Array,
    values: Array,
    counts: Array,
) -> tuple[int, int]:
    """Add the gradient to the memory, and take out what is large."""
    bounds, thresholds = layers
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


def place_sum(parts: SparseParts, unit: int, out: Array) -> None:
    """Set entries that any part has to the sum."""
    sums, there = _sum(parts, len(out), unit)
    words = np.repeat(there, unit)[: len(out)]
    out[words] = sums[words]


def compact_sum(
    parts: SparseParts, words: int, unit: int, index_out: Array, values_out: Array
) -> tuple[int, int]:
    """Write the sum as a tensor of its own."""
    sums, there = _sum(parts, words, unit)
    return _write(sums, there, unit, index_out, values_out)


def _units(words: NDArray[np.bool_], unit: int) -> NDArray[np.bool_]:
    """Return which units have any word that is there; the last unit may be cut."""
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


def _sum(parts: SparseParts, words: int, unit: int) -> tuple[Array, NDArray[np.bool_]]:
    """Sum the parts in their order, from +0; and say which units any has."""
    index, index_bounds, values, value_bounds = parts
    _check_unit(unit)
    _check_bounds(index_bounds, len(index))
    _check_bounds(value_bounds, len(values))
    check(len(index_bounds) == len(value_bounds), "bounds: expected as many parts of index and values")
    sums, any_there = np.zeros(words, values.dtype), np.zeros(-(-words // unit), bool)
    readers = [_IndexReader(index[begin:end], words) for begin, end in pairwise(index_bounds.tolist())]
    rests = [values[begin:end] for begin, end in pairwise(value_bounds.tolist())]
    for first, here, units in _chunks(words, unit):
        for part, reader in enumerate(readers):
            there = np.zeros(units, bool)
            there[reader.chunk(units)] = True
            at = first + np.flatnonzero(np.repeat(there, unit)[:here])
            expect(len(at) <= len(rests[part]), "values: fewer than the index says")
            with np.errstate(all="ignore"):
                sums[at] += rests[part][: len(at)]
            rests[part] = rests[part][len(at) :]
            any_there[first // unit : first // unit + units] |= there
    for reader, rest in zip(readers, rests, strict=True):
        reader.finish()
        expect(len(rest) == 0, "values: more than the index says")
    return sums, any_there


class _IndexReader:
    """Reads an index: counts of all chunks come first, then the places of one after the other."""

    def __init__(self, index: Bytes, words: int) -> None:
        data = index.tobytes()
        self._counts, self._places = Reader(data), Reader(data)
        self._places.take(2 * -(-words // CHUNK_WORDS), "index")

    def chunk(self, units: int) -> NDArray[np.int64]:
        """Return the units that are there in the next chunk, which has places for ``units``."""
        taken = int.from_bytes(self._counts.take(2, "index"), "little")
        expect(taken <= units, "index: a chunk of more units than it has places for")
        places = self._places.take(positions_bytes(units, taken), "index")
        return decode_positions(np.frombuffer(places, np.uint8), units, taken)

    def finish(self) -> None:
        expect(self._places.left == 0, "index: bytes after its end")


def _check_unit(unit: int) -> None:
    check(1 <= unit <= MOST_UNIT and unit & (unit - 1) == 0, "unit: expected 1, 2, 4, ... or 64")


def _check_bounds(bounds: Array, end: int) -> None:
    check(len(bounds) >= 1 and bounds[0] == 0, "bounds: expected to begin with 0")
    check(bool((np.diff(bounds) >= 0).all()), "bounds: expected to ascend")
    check(int(bounds[-1]) == end, "bounds: expected to end where the array does")
