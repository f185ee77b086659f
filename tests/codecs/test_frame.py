"""Frame: a block that explains itself, and lies that it refuses."""

from __future__ import annotations

import struct
import zlib
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from laconic import Bounded, BoundedRows, Cast, Frame, Huffman, Hybrid, IdList, Lossless, VectorLz
from laconic.codecs.inspect import explain
from laconic.errors import ConfigError, FormatError
from tests.cases import each

FLOAT_CODECS = [
    BoundedRows(0.02),
    Bounded(0.02),
    VectorLz(0.02),
    Huffman(0.02),
    Hybrid(0.02),
    *(Cast(dtype) for dtype in ("fp16", "bf16", "int8", "int4")),
]


def frame_bytes(shape=(30, 8)):
    torch.manual_seed(0)
    return Frame.of(BoundedRows(0.02), torch.randn(shape)).to_bytes()


def with_checksum(data, dimensions):
    """Return the frame with a checksum that fits, as a forger would."""
    at = 16 + 8 * dimensions
    return data[:at] + struct.pack("<I", zlib.crc32(data[at + 4 :], zlib.crc32(data[:at]))) + data[at + 4 :]


@each("codec", FLOAT_CODECS)
@each("shape", [(), (7,), (30, 8), (2, 3, 4), (0, 8), (1,) * 8])
def test_a_stranger_decodes_a_frame_without_knowing_the_codec(codec, shape):
    x = torch.randn(shape)
    frame = Frame.parse(Frame.of(codec, x).to_bytes())
    assert frame.shape == shape
    assert frame.wire_id == codec.wire_id
    assert torch.equal(frame.decode(), codec.decode(codec.encode(x), shape))


def test_ids_travel_in_frames_too():
    ids = torch.randint(-100, 100, (4, 5))
    decoded = Frame.parse(Frame.of(IdList(), ids).to_bytes()).decode()
    assert decoded.dtype == torch.int64
    assert torch.equal(decoded, ids)


def test_wire_ids_are_all_different():
    assert len({codec.wire_id for codec in [*FLOAT_CODECS, IdList()]}) == len(FLOAT_CODECS) + 1


@given(at=st.integers(0, 10_000), flip=st.integers(1, 255))
def test_every_damaged_byte_is_noticed(at, flip):
    data = bytearray(frame_bytes())
    data[at % len(data)] ^= flip
    with pytest.raises(FormatError):
        Frame.parse(bytes(data))


@given(st.integers(0, 10_000))
def test_every_cut_is_noticed(cut):
    data = frame_bytes()
    with pytest.raises(FormatError):
        Frame.parse(data[: cut % len(data)])


@given(st.binary(max_size=100))
def test_any_bytes_parse_or_raise_a_format_error(data):
    with pytest.raises(FormatError):
        Frame.parse(b"LCNC" + data)


@each(
    ("at", "value", "message"),
    [
        (0, b"X", "magic: expected b'LCNC', got b'XCNC'; this is not a Laconic frame"),
        (4, b"\x02", "version: expected 1, got 2; a newer Laconic wrote this frame"),
        (5, b"\x63", "wire id: no codec has 99 "),
        (6, b"\x01", "dtype: expected 0 for wire id 1, got 1"),
        (7, b"\x09", "dimensions: expected at most 8, got 9"),
        (8, struct.pack("<Q", 2**40), "is more than 2147483648 values; raise max_values if that is right"),
        (24, struct.pack("<Q", 1), "length: expected 1 bytes of block, got"),
    ],
)
def test_a_lying_field_is_named(at, value, message):
    data = frame_bytes()
    forged = with_checksum(data[:at] + value + data[at + len(value) :], 2)
    with pytest.raises(FormatError, match=message.replace("(", r"\(")):
        Frame.parse(forged)


def test_a_forged_shape_is_refused_by_the_block():
    data = frame_bytes()
    forged = with_checksum(data[:8] + struct.pack("<Q", 31) + data[16:], 2)
    with pytest.raises(FormatError):
        Frame.parse(forged).decode()


@each(
    "shape",
    [(0, 2**41), (2**41, 0), (0, 2**40, 2**40), (*(2**40,) * 7, 0), (2**20, 2**21), (2**63,), (2**64 - 1, 0)],
)
@each("max_values", [2**31, 2**80])
@each("codec", [*FLOAT_CODECS, Lossless(), IdList()])
def test_a_shape_that_nothing_can_have_is_a_format_error(codec, shape, max_values):
    empty = torch.empty(0, dtype=torch.int64 if isinstance(codec, IdList) else torch.float32)
    forged = replace(Frame.of(codec, empty), shape=shape).to_bytes()
    with pytest.raises(FormatError, match=r"^shape: \(.+\) is more than \d+ values"):
        Frame.parse(forged, max_values)


BLOCKS = [
    Frame.of(codec, x.long() if isinstance(codec, IdList) else x)
    for codec in [*FLOAT_CODECS, Lossless(), IdList()]
    for x in (torch.zeros(0, 3), torch.ones(5, 3), torch.arange(60.0).reshape(20, 3) ** 2)
]
SIZES = st.sampled_from([0, 1, 2, 3, 5, 15, 20, 60, 2**31, 2**32, 2**40, 2**64 - 1]) | st.integers(0, 99)


@settings(max_examples=50)
@given(
    frame=st.sampled_from(BLOCKS),
    shape=st.lists(SIZES, max_size=8),
    cut=st.integers(0, 400),
    tail=st.binary(max_size=8),
)
def test_a_forged_frame_decodes_or_raises_a_format_error(frame, shape, cut, tail):
    body = bytes(frame.block.numpy()[:cut]) + tail
    block = torch.frombuffer(bytearray(body), dtype=torch.uint8) if body else frame.block[:0]
    forged = replace(frame, shape=tuple(shape), block=block).to_bytes()
    try:
        decoded = Frame.parse(forged, max_values=4096).decode()
    except FormatError:
        return
    assert decoded.shape == tuple(shape)


def test_more_than_eight_dimensions_are_refused():
    with pytest.raises(ConfigError, match="expected at most 8 dimensions, got 9"):
        Frame.of(BoundedRows(), torch.zeros((1,) * 9))


@each("codec", [*FLOAT_CODECS, IdList()])
def test_an_explanation_accounts_for_every_byte(codec):
    torch.manual_seed(0)
    x = (
        torch.randint(0, 10**6, (600,))
        if isinstance(codec, IdList)
        else torch.randn(40, 8)[torch.randint(0, 40, (90,))]
    )
    data = Frame.of(codec, x).to_bytes()
    end = 0
    for field in explain(data):
        assert field.offset == end, field
        end += field.size
    assert end == len(data)


def test_a_list_that_lies_about_its_count_is_refused_before_it_is_explained():
    frame = Frame(
        wire_id=IdList.wire_id, dtype=torch.int64, shape=(3,), block=IdList().encode(torch.arange(4))
    )
    with pytest.raises(FormatError, match="count: the block has 4 ids, expected 3"):
        explain(frame.to_bytes())
