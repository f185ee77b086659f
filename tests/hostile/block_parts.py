"""Blocks by hand: each part of a block as bytes, so that a test can replace one by a lie.

The defaults of every function make a valid block; layouts are those of ``docs/formats``.
"""

from __future__ import annotations

import struct

ONE = struct.pack("<f", 1.0)
SMALL = (2, 3)
"""The shape of the blocks that need no other."""


def varint(value: int) -> bytes:
    """Little-endian base 128, shortest form."""
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def signed(value: int) -> bytes:
    """Write a varint with the sign in the lowest bit."""
    return varint((value << 1 ^ value >> 63) & 2**64 - 1)


TOO_LONG = b"\xff" * 9 + b"\x02"
"""A varint of 65 bits."""

NOT_SHORTEST = b"\x80\x00"
"""Zero in two bytes."""

NONE = varint(0)

HIGHEST = 2**64 - 1

SIX_STREAMS = bytes([8] * 5) + bytes(48)
"""A chunk of 384 one-bit symbols, 64 to a stream: five sizes, six streams."""

ZEROS = bytes(4)
"""A literal row of vector LZ: its mark and three codes."""


def packed(values: int, width: int) -> bytes:
    """Write a packed sequence of zeros."""
    return bytes([width << 2]) + bytes((values * width + 7) // 8)


def coded(
    chunk: bytes,
    *,
    kind: int = 2,
    last: int = 1,
    live: bytes = b"\x03",
    lengths: bytes = b"\x11",
    size: int | None = None,
    low: bytes = b"",
) -> bytes:
    """Write a sequence of one chunk with its own code; by default symbols 0 and 1, one bit each."""
    directory = struct.pack("<H", len(chunk) if size is None else size)
    return bytes([kind, last]) + live + lengths + directory + chunk + low


def rows_block(
    *,
    form: int = 2,
    step: bytes = ONE,
    base: bytes = NONE,
    references: bytes = b"",
    smallest: bytes = NONE,
    codes: bytes = packed(6, 2),
    outliers: bytes = NONE,
    patches: bytes = NONE,
) -> bytes:
    """Write a BoundedRows block of shape 2 x 3, its codes packed."""
    return bytes([form]) + step + base + references + smallest + codes + outliers + patches


def huffman(codes: bytes, **parts: bytes) -> bytes:
    """Write a BoundedRows block whose codes are entropy-coded."""
    return rows_block(form=3, codes=codes, **parts)


def shared(references: bytes, **parts: bytes) -> bytes:
    """Write a BoundedRows block with references to, by default, one distinct row."""
    return rows_block(form=4, references=references, **{"codes": packed(3, 2), **parts})


def one_value(bits: bytes) -> bytes:
    """Write a constant block."""
    return bytes([0]) + bits


def sc24_block(
    *, form: int = 5, step: bytes = ONE, base: bytes = NONE, rows: bytes, patches: bytes = NONE
) -> bytes:
    """Write a vector LZ (form 5) or Huffman (form 6) block."""
    return bytes([form]) + step + base + rows + patches


def lossless_block(
    *, form: int = 2, flags: bytes = b"", values: int = 6, top: int = 0, exponents: bytes | None = None
) -> bytes:
    """Write a Lossless block of zeros in words, by default of six; the exponents are packed."""
    sequence = packed(values, 1) if exponents is None else exponents
    return bytes([form]) + flags + bytes(3 * values) + bytes([top]) + sequence


def ids_block(
    *, count: bytes, form: int = 1, reference: bytes = NONE, classes: bytes, raw: bytes = b""
) -> bytes:
    """Write a list of ids that is not stored."""
    return count + bytes([form]) + reference + classes + raw
