"""Lies that a list of ids can tell.

A case: the field that lies, the count that the reader expects, the whole block.
"""

from __future__ import annotations

from tests.hostile.block_parts import (
    HIGHEST,
    NOT_SHORTEST,
    TOO_LONG,
    coded,
    ids_block,
    packed,
    varint,
)

IDS_LIES = {
    "no bytes at all": ("count", 2, b""),
    "count too low": ("count", 2, varint(1) + b"\0" + bytes(8)),
    "count too high": ("count", 2, varint(3) + b"\0" + bytes(24)),
    "count of 64 bits": ("count", 2, varint(HIGHEST) + b"\0" + bytes(16)),
    "count of 65 bits": ("count", 2, TOO_LONG + b"\0" + bytes(16)),
    "count not in its shortest form": ("count", 0, NOT_SHORTEST + b"\0"),
    "form missing": ("form", 2, varint(2)),
    "form 4": ("form", 2, ids_block(count=varint(2), form=4, classes=packed(1, 1))),
    "form of an empty list": ("form", 0, ids_block(count=varint(0), classes=packed(0, 1))),
    "stored ids too few": ("stored ids", 2, varint(2) + b"\0" + bytes(15)),
    "stored ids too many": ("block", 2, varint(2) + b"\0" + bytes(17)),
    "stored bytes for no ids": ("block", 0, varint(0) + b"\0\0"),
    "reference missing": ("reference", 2, varint(2) + b"\1"),
    "reference of 65 bits": (
        "reference",
        2,
        ids_block(count=varint(2), reference=TOO_LONG, classes=packed(1, 1)),
    ),
    "classes missing": ("sequence kind", 2, ids_block(count=varint(2), classes=b"")),
    "classes in groups": (
        "sequence kind",
        3,
        ids_block(count=varint(3), classes=coded(b"\0", kind=2 | 1 << 2)),
    ),
    "classes with low bits": (
        "sequence kind",
        3,
        ids_block(count=varint(3), classes=coded(b"\0", kind=2 | 1 << 4, low=b"\0")),
    ),
    "class above 255": ("class", 2, ids_block(count=varint(2), classes=b"\x24\x00\x01")),
    "classes cut": ("stream", 3, ids_block(count=varint(3), classes=coded(b""))),
    "raw bits missing": ("raw bits", 2, ids_block(count=varint(2), classes=b"\x20\xff")),
    "raw bits cut": ("raw bits", 2, ids_block(count=varint(2), classes=b"\x20\xff", raw=bytes(7))),
    "a byte after the end": ("block", 2, ids_block(count=varint(2), classes=packed(1, 1), raw=b"\0")),
    "a byte after the raw bits": (
        "block",
        2,
        ids_block(count=varint(2), form=3, classes=packed(2, 8), raw=b"\0"),
    ),
}
