"""Lies that a Lossless block can tell.

A case: the field that lies, the shape, the whole block.
"""

from __future__ import annotations

from tests.hostile.block_parts import SIX_STREAMS, SMALL, coded, lossless_block, one_value, packed

SOME = b"\x04\x15"
"""Flags of a sparse 2 x 3 block: three of its values are not zero."""

LOSSLESS_LIES = {
    "no bytes at all": ("form", SMALL, b""),
    "form of no block": ("form", SMALL, lossless_block(form=4)),
    "bytes for an empty shape": ("block", (0, 3), lossless_block()),
    "constant of three bytes": ("value", SMALL, one_value(bytes(3))),
    "stored values too few": ("stored values", SMALL, b"\1" + bytes(23)),
    "stored values too many": ("block", SMALL, b"\1" + bytes(25)),
    "mantissas cut": ("signs and mantissas", SMALL, b"\2" + bytes(17)),
    "no largest exponent": ("largest exponent", SMALL, b"\2" + bytes(18)),
    "no exponents": ("sequence kind", SMALL, lossless_block(exponents=b"")),
    "exponents of no mode": ("sequence kind", SMALL, lossless_block(exponents=b"\3")),
    "exponents in groups": ("sequence kind", SMALL, lossless_block(exponents=coded(b"\0", kind=2 | 1 << 2))),
    "exponents with low bits": (
        "sequence kind",
        SMALL,
        lossless_block(exponents=coded(b"\0", kind=2 | 1 << 4, low=b"\0")),
    ),
    "exponents above 255": ("exponent", SMALL, lossless_block(exponents=b"\x24" + b"\xff" * 7)),
    "exponents cut": ("packed values", SMALL, lossless_block(exponents=b"\x20" + bytes(5))),
    "a code that is not complete": (
        "code lengths",
        SMALL,
        lossless_block(exponents=coded(b"\0", lengths=b"\x21")),
    ),
    "a stream that ends too late": ("stream", SMALL, lossless_block(exponents=coded(b"\0\0"))),
    "streams longer than their chunk": (
        "stream sizes",
        (1, 384),
        lossless_block(values=384, exponents=coded(b"\xff" * 5 + SIX_STREAMS[5:])),
    ),
    "a byte after the end": ("block", SMALL, lossless_block() + b"\0"),
    "flags above 1": (
        "nonzero flags",
        SMALL,
        lossless_block(form=3, flags=b"\x08\xff\x0f", values=6, exponents=packed(6, 0)),
    ),
    "flags cut": (
        "packed values",
        (9, 1),
        lossless_block(form=3, flags=b"\x04\0", values=0, exponents=b"")[:3],
    ),
    "more flags than mantissas": ("signs and mantissas", SMALL, b"\3" + SOME + bytes(8)),
    "fewer flags than mantissas": (
        "block",
        SMALL,
        lossless_block(form=3, flags=SOME, values=6, exponents=b"") + packed(6, 0),
    ),
}
