"""Heads of messages: every implementation writes the same bytes, and refuses the same ones."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from laconic import kernels
from laconic.errors import FormatError

NAMES = ("reference", *kernels.available())
numbers = st.one_of(
    st.just(0), st.integers(1, 300), st.integers(-(2**63), 2**63 - 1), st.sampled_from([127, 128, 2**63 - 1])
)


def encode(name, rows):
    matrix = np.array(rows, np.int64).reshape(len(rows), -1)
    heads, count = matrix.shape
    out = np.full(heads * (-(-count // 8) + 10 * count), 0xAA, np.uint8)
    offsets = np.empty(heads + 1, np.int64)
    kernels.load(name).encode_heads(matrix, out, offsets)
    return out[: offsets[-1]].tobytes(), offsets.tolist()


def decode(name, data, offsets, count):
    found = np.full((len(offsets) - 1, count), 77, np.int64)
    kernels.load(name).decode_heads(np.frombuffer(data, np.uint8), np.array(offsets), found)
    return found.tolist()


def refusal(name, data, count, offsets=None):
    try:
        return decode(name, data, offsets or [0, len(data)], count)
    except FormatError as error:
        return str(error)


@settings(max_examples=100)
@given(
    st.integers(0, 20).flatmap(
        lambda n: st.lists(st.lists(numbers, min_size=n, max_size=n), min_size=1, max_size=4)
    )
)
def test_numbers_come_back_and_all_write_the_same_bytes(rows):
    written = {name: encode(name, rows) for name in NAMES}
    assert len(set(map(str, written.values()))) == 1, written
    for name in NAMES:
        assert decode(name, *written["reference"], len(rows[0])) == rows, name


def test_zeros_take_a_bit_and_small_numbers_a_byte_more():
    data, offsets = encode("reference", [[0] * 16, [1, 0, 127, 128, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, -1]])
    assert offsets == [0, 2, 4 + 1 + 1 + 2 + 10]
    assert (
        data
        == bytes([0, 0]) + bytes([0b1101, 0b1000_0000]) + bytes([1, 127, 0x80, 1]) + b"\xff" * 9 + b"\x01"
    )


HOSTILE = {
    "head 0: bits: needs 2 bytes, the block has 1 left": (b"\x01", 9),
    "head 0: bits: more of them than numbers": (b"\x08\x01", 3),
    "head 0: number: needs 1 bytes, the block has 0 left": (b"\x03\x01", 2),
    "head 0: number: 0 has no bit": (b"\x01\x00", 1),
    "head 0: number: not a 64-bit varint in its shortest form": (b"\x01\x81\x00", 1),
    "head 0: head: bytes after its end": (b"\x01\x05\x05", 1),
}


@pytest.mark.parametrize("said", HOSTILE)
def test_what_is_no_head_is_refused_alike(said):
    for name in NAMES:
        assert refusal(name, *HOSTILE[said]) == said, name


def test_a_number_of_more_than_64_bits_is_refused():
    for name in NAMES:
        assert "not a 64-bit varint" in refusal(name, b"\x01" + b"\xff" * 9 + b"\x02", 1), name


def test_the_first_bad_head_is_named_and_so_are_offsets_outside():
    for name in NAMES:
        assert refusal(name, b"\x01\x05\x01", 1, [0, 2, 3]).startswith("head 1: number"), name
        assert "head 1: offsets 2..9 are not inside" in refusal(name, b"\x01\x05\x01", 1, [0, 2, 9]), name


@settings(max_examples=200)
@given(st.binary(max_size=40), st.integers(0, 20))
def test_any_bytes_decode_or_are_refused_and_all_agree(data, count):
    found = {name: str(refusal(name, data, count)) for name in NAMES}
    assert len(set(found.values())) == 1, found


def test_memory_that_does_not_fit_is_refused_before_anything_is_written():
    rows, offsets = np.ones((2, 3), np.int64), np.zeros(3, np.int64)
    for name in NAMES:
        with pytest.raises(ValueError, match="out is smaller than the heads may be"):
            kernels.load(name).encode_heads(rows, np.zeros(61, np.uint8), offsets)
        with pytest.raises(ValueError, match="offsets must have one more entry than there are heads"):
            kernels.load(name).decode_heads(np.zeros(61, np.uint8), offsets[:2], rows)
