"""Indices of sparse tensors that lie, written by hand: every kernel refuses them in equal words."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from laconic import kernels
from laconic.errors import FormatError
from tests.cases import each
from tests.hostile.decoding import NAMES


def counts(*numbers: int) -> bytes:
    return struct.pack(f"<{len(numbers)}H", *numbers)


# words, index, number of values, and what is said of them
LIES = {
    "no index": (10, b"", 0, "index: needs 2 bytes, the block has 0 left"),
    "half a count": (32769, counts(0) + b"\0", 0, "index: needs 4 bytes, the block has 3 left"),
    "more than a chunk has": (10, counts(11), 11, "index: a chunk of more units than it has places for"),
    "no places": (10, counts(3), 3, "index: needs 2 bytes, the block has 0 left"),
    "bytes behind it": (10, counts(10) + b"\0", 10, "index: bytes after its end"),
    "bitmap of more": (10, counts(3) + b"\x0f\0", 3, "positions: a bitmap of other places than were announced"),
    "bitmap outside": (10, counts(3) + b"\x03\x04", 3, "positions: a bitmap of other places than were announced"),
    "bitmap outside, and of fewer": (10, counts(3) + b"\0\x80", 3, "positions: a bitmap of other places than were announced"),
    "bitmap of fewer": (10, counts(3) + b"\x03\0", 3, "positions: a bitmap of fewer places than were announced"),
    "empty bitmap": (10, counts(3) + b"\0\0", 3, "positions: a bitmap of fewer places than were announced"),
    "places of more": (200, counts(1) + b"\x00\x03", 1, "positions: more places than were announced"),
    "places of fewer": (200, counts(1) + b"\x00\x00", 1, "positions: fewer places than were announced"),
    "a place outside": (200, counts(1) + b"\x7f\x02", 1, "positions: places that do not ascend, or lie outside"),
    "places that do not ascend": (200, counts(2) + b"\x85\x00\x03", 2, "positions: places that do not ascend, or lie outside"),
    "the same place twice, and a third": (200, counts(2) + b"\x00\x00\x07", 2, "positions: places that do not ascend, or lie outside"),
    "bits behind the last place": (200, counts(1) + b"\x80\x01", 1, "positions: bits after the last place"),
    "values that are not there": (10, counts(10), 9, "values: fewer than the index says"),
    "values for nothing": (10, counts(0), 1, "values: more than the index says"),
    "both too long": (10, counts(10) + b"\0", 11, "index: bytes after its end"),
    "the second chunk": (32770, counts(0, 3), 0, "index: a chunk of more units than it has places for"),
}  # fmt: skip


def refusals(name, words, index, value_count):
    """Return what the kernels say, by function; of two parts the second lies."""
    backend, empty = kernels.load(name), bytes(2 * -(-words // 32768))
    data = np.frombuffer(empty + index, np.uint8)
    bounds = np.array([0, len(empty), len(data)])
    values, value_bounds = np.ones(value_count, np.float32), np.array([0, 0, value_count])
    parts = kernels.SparseParts(data, bounds, values, value_bounds)
    room, out = np.empty(backend.sparse_index_room(words, 1), np.uint8), np.empty(words, np.float32)
    calls = {
        "place_sum": lambda: backend.place_sum(parts, 1, out),
        "compact_sum": lambda: backend.compact_sum(parts, words, 1, room, out),
    }
    said = {}
    for function, call in calls.items():
        try:
            call()
        except FormatError as error:
            said[function] = str(error)
    return said


@each("name", NAMES)
@each("lie", LIES)
def test_a_lying_index_is_refused_in_the_same_words_by_all_kernels(name, lie):
    *arguments, message = LIES[lie]
    assert refusals(name, *arguments) == dict.fromkeys(["place_sum", "compact_sum"], message)


@each("name", NAMES)
def test_of_several_lies_all_kernels_name_the_same(name):
    """Chunk after chunk, in each part after part; what is left over comes last."""
    backend = kernels.load(name)
    first = counts(32768, 3)  # too much in the second chunk
    second = counts(32768, 0) + b"\0"  # a byte too many, and values too few in the first
    data = np.frombuffer(first + second, np.uint8)
    values = np.ones(40000, np.float32)
    parts = kernels.SparseParts(data, np.array([0, 4, 9]), values, np.array([0, 32768, 40000]))
    with pytest.raises(FormatError, match=r"^values: fewer than the index says$"):
        backend.place_sum(parts, 1, np.empty(32770, np.float32))
