"""Lies that a block of the SC'24 encoders can tell.

A case: the field that lies, the shape, the whole block.
"""

from __future__ import annotations

import struct

from tests.hostile.block_parts import (
    SMALL,
    ZEROS,
    coded,
    one_value,
    packed,
    rows_block,
    sc24_block,
    signed,
    varint,
)

SC24_LIES = {
    "no bytes at all": ("form", SMALL, b""),
    "form of packed rows": ("form", SMALL, rows_block(form=2)),
    "form of entropy-coded rows": ("form", SMALL, rows_block(form=3)),
    "form of deduplicated rows": ("form", SMALL, rows_block(form=4)),
    "form of no codec": ("form", SMALL, rows_block(form=7)),
    "bytes for an empty shape": ("block", (0, 3), ZEROS),
    "constant of three bytes": ("value", SMALL, one_value(bytes(3))),
    "stored values too few": ("stored values", SMALL, b"\1" + bytes(23)),
    "stored values too many": ("block", SMALL, b"\1" + bytes(25)),
    "step is NaN": ("step", SMALL, sc24_block(step=struct.pack("<f", float("nan")), rows=ZEROS * 2)),
    "step is zero": ("step", SMALL, sc24_block(step=bytes(4), rows=ZEROS * 2)),
    "base above 2^22": ("base code", SMALL, sc24_block(base=signed(2**22 + 1), rows=ZEROS * 2)),
    "match in the first row": ("distance", SMALL, sc24_block(rows=b"\1\1" + ZEROS)),
    "match before the first row": ("distance", SMALL, sc24_block(rows=ZEROS + b"\2\1")),
    "match before its window": (
        "distance",
        (2049, 1),
        sc24_block(rows=b"\0\0" + b"\1\xff" * 8 + b"\1\7" + b"\1\1"),
    ),
    "match of no rows": ("match length", SMALL, sc24_block(rows=ZEROS + b"\1\0")),
    "match beyond the rows": ("match length", SMALL, sc24_block(rows=ZEROS + b"\1\2")),
    "match beyond its window": (
        "match length",
        (2060, 1),
        sc24_block(rows=b"\0\0" + b"\1\xff" * 8 + b"\1\x09"),
    ),
    "match without length": ("match length", SMALL, sc24_block(rows=ZEROS + b"\1", patches=b"")),
    "row missing": ("distance", SMALL, sc24_block(rows=ZEROS, patches=b"")),
    "literal row cut": ("literal row", SMALL, sc24_block(rows=ZEROS + b"\0\0", patches=b"")),
    "more patches than values": ("patches", SMALL, sc24_block(rows=ZEROS * 2, patches=varint(7) + bytes(35))),
    "patch beyond the values": (
        "patch position",
        SMALL,
        sc24_block(rows=ZEROS * 2, patches=varint(1) + varint(6) + bytes(4)),
    ),
    "a byte after the end": ("block", SMALL, sc24_block(rows=ZEROS * 2) + b"\0"),
    "Huffman with packed codes": ("sequence kind", SMALL, sc24_block(form=6, rows=packed(6, 2))),
    "Huffman with a static code": ("sequence kind", SMALL, sc24_block(form=6, rows=b"\1\x10\1\0\0")),
    "Huffman with groups": ("sequence kind", SMALL, sc24_block(form=6, rows=coded(b"\0", kind=2 | 1 << 2))),
    "Huffman with low bits": (
        "sequence kind",
        SMALL,
        sc24_block(form=6, rows=coded(b"\0", kind=2 | 1 << 4, low=b"\0")),
    ),
    "Huffman of mode 3": ("sequence kind", SMALL, sc24_block(form=6, rows=b"\3" + bytes(9))),
    "Huffman code with a gap": (
        "code lengths",
        SMALL,
        sc24_block(form=6, rows=coded(b"\0", lengths=b"\x21")),
    ),
    "Huffman chunk beyond the block": ("chunk", SMALL, sc24_block(form=6, rows=coded(b"\0", size=9))),
    "Huffman stream too long": ("stream", SMALL, sc24_block(form=6, rows=coded(b"\0\0"))),
}
