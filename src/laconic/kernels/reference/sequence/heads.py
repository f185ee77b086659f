"""Heads of messages: a row of int64 numbers for each rank.

Normative text: ``docs/formats/head.md``::

    bits      one for each number that is not 0
    numbers   varints of these, in two's complement
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from laconic.errors import FormatError
from laconic.kernels.api import Array
from laconic.kernels.reference.byte_io import Reader, Writer, expect

__all__ = ["decode_heads", "encode_heads"]

_64_BITS = 0xFFFFFFFFFFFFFFFF


def encode_heads(numbers: Array, out: Array, offsets: Array) -> None:
    """Encode one head after the other."""
    heads, count = numbers.shape
    _check_offsets(offsets, heads)
    if len(out) < heads * (-(-count // 8) + 10 * count):
        raise ValueError("out is smaller than the heads may be")
    writer, ends = Writer(), [0]
    for row in numbers.tolist():
        there = np.array(row, np.int64) != 0
        writer.bytes(np.packbits(there, bitorder="little").tobytes())
        for value in row:
            if value:
                writer.varint(value & _64_BITS)
        ends.append(len(writer.data))
    out[: len(writer.data)] = np.frombuffer(bytes(writer.data), np.uint8)
    offsets[:] = ends


def decode_heads(block: Array, offsets: Array, numbers: Array) -> None:
    """Undo ``encode_heads``."""
    heads, count = numbers.shape
    _check_offsets(offsets, heads)
    data = block.tobytes()
    for i, (start, end) in enumerate(pairwise(offsets.tolist())):
        if not 0 <= start <= end <= len(data):
            raise FormatError(
                f"head {i}: offsets {start}..{end} are not inside the buffer of {len(data)} bytes"
            )
        try:
            numbers[i] = _decode(Reader(data[start:end]), count)
        except FormatError as error:
            raise FormatError(f"head {i}: {error}") from None


def _decode(reader: Reader, count: int) -> Array:
    packed = reader.take(-(-count // 8), "bits")
    bits = np.unpackbits(np.frombuffer(packed, np.uint8), bitorder="little")
    expect(not bits[count:].any(), "bits: more of them than numbers")
    values = np.zeros(count, np.uint64)
    for k in np.flatnonzero(bits[:count]):
        values[k] = reader.varint("number")
        expect(bool(values[k]), "number: 0 has no bit")
    expect(reader.left == 0, "head: bytes after its end")
    return values.view(np.int64)


def _check_offsets(offsets: Array, heads: int) -> None:
    if len(offsets) != heads + 1:
        raise ValueError("offsets must have one more entry than there are heads")
