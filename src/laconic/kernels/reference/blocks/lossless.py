"""Lossless: float32 values bit by bit, exponents entropy-coded, zeros only marked.

Normative text: ``docs/formats/lossless.md``. A block starts with its form, one byte; an empty block
has no bytes::

    0 constant   float32 that all values have
    1 stored     float32[n]
    2 full       words
    3 sparse     sequence of one bit a value, 1 where it is not +0.0; words of those values

    words        3 bytes each: mantissa << 1 | sign
                 largest exponent, one byte
                 sequence of how far each exponent is below it

Shapes: ``N`` values, ``K`` words, which are bit patterns in int64.
"""

from __future__ import annotations

from enum import IntEnum

import torch
from torch import Tensor

from laconic.kernels.reference.blocks.quantized_block import (
    constant_block,
    max_block_bytes,
    read_plain_form,
    stored_block,
)
from laconic.kernels.reference.byte_io import Reader, Writer, expect
from laconic.kernels.reference.sequence.bits import pack_bits, unpack_bits
from laconic.kernels.reference.sequence.coding import (
    Mode,
    Statistics,
    choose_coding,
    choose_for_values,
    count_symbols,
)
from laconic.kernels.reference.sequence.huffman import entropy_q16
from laconic.kernels.reference.sequence.sequence import (
    SequenceReader,
    write_packed,
    write_symbols,
    write_values,
)

_REST_BITS = 24  # of a word without its exponent


class LosslessForm(IntEnum):
    """First byte of a block."""

    CONSTANT = 0
    STORED = 1
    FULL = 2
    SPARSE = 3


def encode_lossless(x_N: Tensor) -> bytes:
    """Encode values, given row by row."""
    n = len(x_N)
    if not n:
        return b""
    words_N = x_N.view(torch.int32).to(torch.int64) & 0xFFFFFFFF
    if bool((words_N == words_N[0]).all()):
        return constant_block(x_N[:1])
    out = Writer()
    bits_N = (words_N != 0).to(torch.int64)
    zeros = n - int(bits_N.sum())
    coding = choose_for_values(bits_N, 2) if zeros else None
    if coding and coding.bits < _REST_BITS * zeros:
        out.byte(LosslessForm.SPARSE)
        write_values(coding, bits_N, out)
        words_N = words_N[bits_N != 0]
    else:
        out.byte(LosslessForm.FULL)
    _write_words(words_N, out)
    return bytes(out.data) if len(out.data) <= max_block_bytes(n) else stored_block(x_N)


def _write_words(words_K: Tensor, out: Writer) -> None:
    turned_K = (
        words_K << 1 | words_K >> 31
    ) & 0xFFFFFFFF  # the exponent is the top byte, the sign the lowest bit
    out.bytes(pack_bits(turned_K & 0xFFFFFF, _REST_BITS))
    exponent_K = turned_K >> 24
    top = int(exponent_K.max())
    ranks_K = top - exponent_K
    histogram = count_symbols(ranks_K)
    mean_q8 = (int(ranks_K.sum()) << 8) // len(ranks_K)
    known = Statistics(histogram, entropy_q16(histogram), len(ranks_K), mean_q8)
    coding = choose_coding(known, 0, 0, centered=False)
    out.byte(top)
    if coding.mode == Mode.PACKED:
        write_packed(ranks_K, coding.width, out)
    else:
        write_symbols(coding, ranks_K.to(torch.uint8), out)


def decode_lossless(reader: Reader, n: int) -> Tensor:
    """Decode a block of ``n`` values; ``FormatError`` unless it is exactly one."""
    if not n:
        expect(reader.left == 0, "block: bytes for an empty shape")
        return torch.empty(0)
    form = reader.byte("form")
    expect(form <= max(LosslessForm), "form: outside 0..3")
    reader.note(f"{LosslessForm(form).name.lower()} ({form})")
    out = read_plain_form(form, reader, n)
    if out is None:
        words_N = torch.zeros(n, dtype=torch.int64)
        bits_N = torch.ones(n, dtype=torch.int64)
        if form == LosslessForm.SPARSE:
            reader.part = "nonzero flags"
            bits_N = SequenceReader(reader, n).values(2, "nonzero flags")
            reader.part = ""
        words_N[bits_N != 0] = _read_words(reader, int(bits_N.sum()))
        out = words_N.to(torch.int32).view(torch.float32)
    expect(reader.left == 0, "block: bytes after its end")
    return out


def _read_words(reader: Reader, k: int) -> Tensor:
    rest_K = unpack_bits(reader.take(3 * k, "signs and mantissas"), _REST_BITS, k)
    top = reader.byte("largest exponent")
    reader.part = "exponents"
    sequence = SequenceReader(reader, k)
    expect(not sequence.log_group and not sequence.low_bits, "sequence kind: exponents come one to a symbol")
    turned_K = rest_K | (top - sequence.values(256, "exponent") & 255) << 24
    return turned_K >> 1 | (turned_K & 1) << 31
