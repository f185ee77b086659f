"""Lies that a BoundedRows block can tell.

A case: the field that lies, the shape, the whole block.
"""

from __future__ import annotations

import struct

from tests.hostile.block_parts import (
    HIGHEST,
    NONE,
    NOT_SHORTEST,
    SIX_STREAMS,
    SMALL,
    TOO_LONG,
    coded,
    huffman,
    one_value,
    packed,
    rows_block,
    shared,
    signed,
    varint,
)

MANY = (5, 8)  # enough codes for outliers that are written as sequences


def many_outliers(places: bytes, codes: bytes) -> bytes:
    """Write a block with 20 outliers; a sequence that is missing ends it."""
    return rows_block(
        codes=packed(40, 0), outliers=varint(20) + places + codes, patches=NONE if places and codes else b""
    )


ROWS_LIES = {
    "no bytes at all": ("form", SMALL, b""),
    "form of no codec": ("form", SMALL, rows_block(form=7)),
    "form of vector LZ": ("form", SMALL, rows_block(form=5)),
    "form of Huffman": ("form", SMALL, rows_block(form=6)),
    "highest form": ("form", SMALL, rows_block(form=255)),
    "packed form, Huffman codes": ("form", SMALL, rows_block(form=2, codes=coded(b"\0"))),
    "entropy form, packed codes": ("form", SMALL, rows_block(form=3)),
    "bytes for an empty shape": ("block", (0, 3), one_value(bytes(4))),
    "bytes for no columns": ("block", (3, 0), rows_block()),
    "constant of three bytes": ("value", SMALL, one_value(bytes(3))),
    "constant of five bytes": ("block", SMALL, one_value(bytes(5))),
    "stored values too few": ("stored values", SMALL, b"\1" + bytes(23)),
    "stored values too many": ("block", SMALL, b"\1" + bytes(25)),
    "step is NaN": ("step", SMALL, rows_block(step=struct.pack("<f", float("nan")))),
    "step is infinite": ("step", SMALL, rows_block(step=struct.pack("<f", float("inf")))),
    "step is zero": ("step", SMALL, rows_block(step=bytes(4))),
    "step is minus zero": ("step", SMALL, rows_block(step=struct.pack("<f", -0.0))),
    "step is negative": ("step", SMALL, rows_block(step=struct.pack("<f", -1.0))),
    "base above 2^22": ("base code", SMALL, rows_block(base=signed(2**22 + 1))),
    "base below -2^22": ("base code", SMALL, rows_block(base=signed(-(2**22) - 1))),
    "base is the smallest int64": ("base code", SMALL, rows_block(base=signed(-(2**63)))),
    "base of 65 bits": ("base code", SMALL, rows_block(base=TOO_LONG)),
    "base of eleven bytes": ("base code", SMALL, rows_block(base=b"\x80" * 10 + b"\1")),
    "base not in its shortest form": ("base code", SMALL, rows_block(base=NOT_SHORTEST)),
    "smallest code above int16": (
        "smallest code",
        SMALL,
        rows_block(smallest=signed(32768), codes=packed(6, 9)),
    ),
    "smallest code below int16": (
        "smallest code",
        SMALL,
        rows_block(smallest=signed(-32769), codes=packed(6, 9)),
    ),
    "smallest narrow code too high": ("smallest code", SMALL, huffman(coded(b"\0"), smallest=signed(128))),
    "smallest narrow code too low": ("smallest code", SMALL, huffman(coded(b"\0"), smallest=signed(-257))),
    "smallest code of 65 bits": ("smallest code", SMALL, rows_block(smallest=TOO_LONG)),
    "sequence of mode 3": ("sequence kind", SMALL, rows_block(codes=b"\3" + bytes(9))),
    "packed width 33": ("sequence kind", SMALL, rows_block(codes=packed(6, 33))),
    "packed width 63": ("sequence kind", SMALL, rows_block(codes=packed(6, 63))),
    "packed width 17": ("codes", SMALL, rows_block(codes=packed(6, 17))),
    "packed width 32": ("codes", SMALL, rows_block(codes=packed(6, 32))),
    "packed values cut": ("packed values", SMALL, rows_block(codes=bytes([8, 0]), outliers=b"", patches=b"")),
    "nine low bits": ("codes", SMALL, huffman(coded(b"\0", kind=2 | 9 << 4, low=bytes(7)))),
    "fifteen low bits": ("codes", SMALL, huffman(coded(b"\0", kind=2 | 15 << 4, low=bytes(12)))),
    "low bits below groups": (
        "sequence kind",
        SMALL,
        huffman(coded(b"\0", kind=2 | 1 << 2 | 1 << 4, low=b"\0")),
    ),
    "low bits cut": (
        "low bits",
        (2, 24),
        huffman(coded(bytes(6), kind=2 | 8 << 4, low=bytes(40)), outliers=b""),
    ),
    "static code of shape 3": ("static code", SMALL, huffman(b"\1\x30\1\0\0")),
    "static code of shape 15": ("static code", SMALL, huffman(b"\1\xff\1\0\0")),
    "static code missing": ("static code", SMALL, huffman(b"\1", outliers=b"", patches=b"")),
    "last symbol missing": ("last symbol", SMALL, huffman(b"\2", outliers=b"", patches=b"")),
    "last symbol not live": ("live symbols", SMALL, huffman(coded(b"\0", live=b"\1"))),
    "live symbols after the last": (
        "live symbols",
        SMALL,
        huffman(coded(b"\0", live=b"\7", lengths=b"\x21\2")),
    ),
    "live symbols cut": ("live symbols", SMALL, huffman(b"\2\xff" + bytes(20), outliers=b"", patches=b"")),
    "code lengths cut": (
        "code lengths",
        SMALL,
        huffman(b"\2\xff" + b"\xff" * 32 + b"\x88" * 127, outliers=b"", patches=b""),
    ),
    "code length 0": ("code lengths", SMALL, huffman(coded(b"\0", lengths=b"\x01"))),
    "code length 13": ("code lengths", SMALL, huffman(coded(b"\0", lengths=b"\xd1"))),
    "code length 15": ("code lengths", SMALL, huffman(coded(b"\0", lengths=b"\xff"))),
    "code with a gap": ("code lengths", SMALL, huffman(coded(b"\0", lengths=b"\x21"))),
    "code with too many words": (
        "code lengths",
        SMALL,
        huffman(coded(b"\0", last=2, live=b"\7", lengths=b"\x11\1")),
    ),
    "code of one symbol": ("code lengths", SMALL, huffman(coded(b"\0", last=0, live=b"\1", lengths=b"\1"))),
    "256 words of one bit": (
        "code lengths",
        SMALL,
        huffman(coded(b"\0", last=255, live=b"\xff" * 32, lengths=b"\x11" * 128)),
    ),
    "chunk sizes missing": ("chunk sizes", SMALL, huffman(b"\2\1\3\x11", outliers=b"", patches=b"")),
    "chunk beyond the block": ("chunk", SMALL, huffman(coded(b"\0", size=4))),
    "chunk of 65535 bytes": ("chunk", SMALL, huffman(coded(b"\0", size=65535))),
    "second chunk beyond the block": (
        "chunk",
        (1, 40000),
        huffman(b"\2\1\3\x11" + struct.pack("<HH", 4106, 65535) + bytes(4200)),
    ),
    "chunk too short for its symbols": ("stream", SMALL, huffman(coded(b""))),
    "chunk too long for its symbols": ("stream", SMALL, huffman(coded(b"\0\0"))),
    "chunk without stream sizes": ("stream sizes", (1, 384), huffman(coded(bytes(4)))),
    "stream sizes beyond the chunk": ("stream sizes", (1, 384), huffman(coded(b"\xff" + SIX_STREAMS[1:]))),
    "sum of stream sizes beyond the chunk": (
        "stream sizes",
        (1, 384),
        huffman(coded(bytes([12] * 5) + bytes(48))),
    ),
    "first stream too short": ("stream", (1, 384), huffman(coded(bytes([7, 9, 8, 8, 8]) + bytes(48)))),
    "last stream too short": ("stream", (1, 384), huffman(coded(bytes([8, 8, 8, 8, 9]) + bytes(48)))),
    "first stream empty": ("stream", (1, 384), huffman(coded(bytes([0, 8, 8, 8, 8]) + bytes(48)))),
    "outliers missing": ("outliers", SMALL, rows_block(outliers=b"", patches=b"")),
    "more outliers than codes": ("outliers", SMALL, rows_block(outliers=varint(7) + bytes(14))),
    "outliers beside wide codes": (
        "outliers",
        SMALL,
        rows_block(codes=packed(6, 9), outliers=varint(1) + NONE + NONE),
    ),
    "outliers of 65 bits": ("outliers", SMALL, rows_block(outliers=TOO_LONG)),
    "outlier beyond the codes": (
        "outlier position",
        SMALL,
        rows_block(outliers=varint(1) + varint(6) + NONE),
    ),
    "second outlier beyond the codes": (
        "outlier position",
        SMALL,
        rows_block(outliers=varint(2) + varint(5) + NONE + varint(0) + NONE),
    ),
    "outlier gap that wraps around": (
        "outlier position",
        SMALL,
        rows_block(outliers=varint(2) + varint(3) + NONE + varint(HIGHEST) + NONE),
    ),
    "narrow outlier above int8": ("outlier code", SMALL, rows_block(outliers=varint(1) + NONE + signed(128))),
    "narrow outlier below int8": (
        "outlier code",
        SMALL,
        rows_block(outliers=varint(1) + NONE + signed(-129)),
    ),
    "outlier code of 64 bits": (
        "outlier code",
        SMALL,
        rows_block(outliers=varint(1) + NONE + varint(HIGHEST)),
    ),
    "many outliers without places": ("outliers", MANY, many_outliers(b"", b"")),
    "many outliers without codes": ("sequence kind", MANY, many_outliers(packed(20, 1), b"")),
    "places in groups": (
        "sequence kind",
        MANY,
        many_outliers(coded(bytes(2), kind=2 | 1 << 2), packed(20, 1)),
    ),
    "places with low bits": (
        "sequence kind",
        MANY,
        many_outliers(coded(bytes(3), kind=2 | 1 << 4, low=bytes(3)), packed(20, 1)),
    ),
    "place of class 256": ("class", MANY, many_outliers(b"\x24\x00\x01" + bytes(20), packed(20, 1))),
    "raw bits of places cut": ("raw bits", MANY, many_outliers(b"\x20" + b"\xff" * 20, packed(20, 1))),
    "places beyond the codes": (
        "outlier position",
        MANY,
        many_outliers(b"\x10" + b"\xff" * 10, packed(20, 1)),
    ),
    "place that wraps around": (
        "outlier position",
        MANY,
        many_outliers(b"\x20\x05\xff" + bytes(18) + b"\xff" * 8, packed(20, 1)),
    ),
    "many outliers, a code above int8": (
        "outlier code",
        MANY,
        many_outliers(packed(20, 1), b"\x24\x00\x01" + bytes(21)),
    ),
    "patches missing": ("patches", SMALL, rows_block(patches=b"")),
    "more patches than values": ("patches", SMALL, rows_block(patches=varint(7) + bytes(35))),
    "more patches than bytes": ("patches", SMALL, rows_block(patches=varint(2) + bytes(9))),
    "patches of 64 bits": ("patches", SMALL, rows_block(patches=varint(HIGHEST))),
    "patch beyond the values": (
        "patch position",
        SMALL,
        rows_block(patches=varint(1) + varint(6) + bytes(4)),
    ),
    "second patch beyond the values": (
        "patch position",
        SMALL,
        rows_block(patches=varint(2) + varint(5) + bytes(4) + varint(0) + bytes(4)),
    ),
    "patch gap that wraps around": (
        "patch position",
        SMALL,
        rows_block(patches=varint(2) + varint(3) + bytes(4) + varint(HIGHEST) + bytes(4)),
    ),
    "patch gap of 65 bits": ("patch position", SMALL, rows_block(patches=varint(1) + TOO_LONG + bytes(4))),
    "patch value cut": (
        "patch value",
        (2, 300),
        rows_block(codes=packed(600, 2), patches=b"\1\xff\1" + bytes(3)),
    ),
    "a byte after the end": ("block", SMALL, rows_block() + b"\0"),
    "repeated rows missing": (
        "repeated rows",
        SMALL,
        shared(b"", smallest=b"", codes=b"", outliers=b"", patches=b""),
    ),
    "no repeated row": ("distinct rows", SMALL, shared(varint(0) + varint(1) + packed(2, 1) + packed(1, 0))),
    "as many distinct rows as rows": ("distinct rows", SMALL, shared(varint(2) + varint(0) + packed(2, 1))),
    "more repeated rows than rows": ("distinct rows", SMALL, shared(varint(3) + varint(0) + packed(2, 2))),
    "more single rows than rows": ("distinct rows", SMALL, shared(varint(1) + varint(2) + packed(2, 1))),
    "distinct rows that wrap around": (
        "distinct rows",
        SMALL,
        shared(varint(2) + varint(HIGHEST) + packed(2, 1)),
    ),
    "repeated rows of 64 bits": ("distinct rows", SMALL, shared(varint(HIGHEST) + varint(1) + packed(2, 1))),
    "duplicates of the only row": ("distinct rows", (1, 3), shared(varint(1) + varint(0) + packed(1, 0))),
    "repeated rows of 65 bits": ("repeated rows", SMALL, shared(TOO_LONG + varint(0))),
    "single rows not in shortest form": ("single rows", SMALL, shared(varint(1) + NOT_SHORTEST)),
    "fewer flags than single rows": (
        "single-row flags",
        (3, 3),
        shared(varint(1) + varint(1) + packed(3, 1) + packed(2, 0), codes=packed(6, 2)),
    ),
    "more flags than single rows": (
        "single-row flags",
        (3, 3),
        shared(varint(1) + varint(1) + b"\x04\x07" + packed(2, 0), codes=packed(6, 2)),
    ),
    "flag that is neither 0 nor 1": (
        "single-row flags",
        (3, 3),
        shared(varint(1) + varint(1) + b"\x08\x02" + packed(2, 0), codes=packed(6, 2)),
    ),
    "reference to no row": ("row references", SMALL, shared(varint(1) + varint(0) + b"\x04\x02")),
    "reference to a single row": (
        "row references",
        (3, 3),
        shared(varint(1) + varint(1) + b"\x04\x01" + b"\x04\x02", codes=packed(6, 2)),
    ),
    "reference of 32 bits": ("row references", SMALL, shared(varint(1) + varint(0) + b"\x80" + b"\xff" * 8)),
    "coded reference to no row": ("row references", SMALL, shared(varint(1) + varint(0) + coded(b"\x40"))),
    "grouped references to no row": (
        "row references",
        SMALL,
        shared(varint(1) + varint(0) + coded(b"\x80", kind=2 | 1 << 2)),
    ),
    "references cut": ("stream", SMALL, shared(varint(1) + varint(0) + coded(b""))),
}
