"""A sequence of small integers on the wire: packed, or Huffman-coded in independent chunks.

The number of values is not stored: the reader knows it. Normative text:
``docs/formats/sequence.md``. The first byte says which kind::

    bits 0-1   mode        0 packed, 1 static code, 2 custom code
    packed     bits 2-7    width of a value, 0..32
    Huffman    bits 2-3    log2 of the digits per symbol
               bits 4-7    raw bits below each symbol, 0 if digits are grouped

    packed     values
    Huffman    code        static: 1 byte; custom: last symbol, live symbols, lengths
               sizes       uint16 per chunk of 32768 symbols
               chunks      each one stream, or sizes of five streams and six streams
               low bits    of every value
"""

from __future__ import annotations

import torch
from torch import Tensor

from laconic.errors import FormatError
from laconic.kernels.reference.byte_io import Reader, Writer, expect, from_bytes
from laconic.kernels.reference.sequence.bits import group, pack_bits, packed_size, ungroup, unpack_bits
from laconic.kernels.reference.sequence.coding import CHUNK_SYMBOLS, MANY_STREAMS, Coding, Mode
from laconic.kernels.reference.sequence.huffman import (
    MAX_CODE_LENGTH,
    STREAMS,
    Decoder,
    Lengths,
    canonical_codes,
    decode_streams,
    encode_streams,
    is_complete,
    make_decoder,
)
from laconic.kernels.reference.sequence.static_code import Shape, static_code

ONE_BYTE_SIZES = 1008
"""Symbols up to which a chunk's stream sizes are bytes: 42 quads of 12-bit codes take 252."""


def write_symbols(coding: Coding, symbols_M: Tensor, out: Writer) -> None:
    """Write all of a Huffman-coded sequence but its low bits."""
    out.byte(coding.mode | coding.log_group << 2 | coding.low_bits << 4)
    if coding.mode == Mode.STATIC:
        out.byte(coding.shape << 4 | coding.level)
        codes = static_code(coding.log_group, coding.shape, coding.level).codes
    else:
        _write_lengths(coding.lengths, out)
        codes = canonical_codes(coding.lengths)
    starts = range(0, len(symbols_M), CHUNK_SYMBOLS)
    chunks = [_encode_chunk(symbols_M[start : start + CHUNK_SYMBOLS], codes) for start in starts]
    for chunk in chunks:
        out.bytes(len(chunk).to_bytes(2, "little"))
    for chunk in chunks:
        out.bytes(chunk)


def write_packed(values_N: Tensor, width: int, out: Writer) -> None:
    """Write a packed sequence."""
    out.byte(Mode.PACKED | width << 2)
    out.bytes(pack_bits(values_N, width))


def write_values(coding: Coding, values_N: Tensor, out: Writer) -> None:
    """Write unsigned values as ``choose_for_values`` decided."""
    if coding.mode == Mode.PACKED:
        write_packed(values_N, coding.width, out)
        return
    write_symbols(coding, group(values_N >> coding.low_bits, coding.log_group), out)
    out.bytes(pack_bits(values_N & (1 << coding.low_bits) - 1, coding.low_bits))


def _write_lengths(lengths: Lengths, out: Writer) -> None:
    last = max(symbol for symbol in range(256) if lengths[symbol])
    live = [int(length > 0) for length in lengths[: last + 1]]
    out.byte(last)
    out.bytes(pack_bits(torch.tensor(live), 1))
    out.bytes(pack_bits(torch.tensor([length for length in lengths if length]), 4))


def _size_field(m: int) -> int:
    """Bytes of a stream's size in a chunk of ``m`` symbols."""
    return 1 if m <= ONE_BYTE_SIZES else 2


def _encode_chunk(symbols_M: Tensor, codes: list[str]) -> bytes:
    m = len(symbols_M)
    if m < MANY_STREAMS:
        return encode_streams(symbols_M, codes, 1)[0]
    streams = encode_streams(symbols_M, codes, STREAMS)
    sizes = [len(stream).to_bytes(_size_field(m), "little") for stream in streams[:-1]]
    return b"".join(sizes + streams)


class SequenceReader:
    """A parsed sequence of ``n`` values; ``FormatError`` unless everything fits together."""

    def __init__(self, reader: Reader, n: int) -> None:
        self.n = n
        self.width = self.log_group = self.low_bits = 0
        kind = reader.byte("sequence kind")
        expect(kind & 3 <= Mode.CUSTOM, "sequence kind: mode 3 does not exist")
        self.mode = Mode(kind & 3)
        self._chunks: list[Reader] = []
        if self.mode == Mode.PACKED:
            self.width = kind >> 2
            expect(self.width <= 32, "sequence kind: packed width above 32")
            reader.note(f"packed, width {self.width}")
            self._raw = reader.take(packed_size(n, self.width), "packed values")
            return
        self.log_group, self.low_bits = kind >> 2 & 3, kind >> 4
        expect(not (self.log_group and self.low_bits), "sequence kind: groups of digits have no low bits")
        reader.note(_kind_text(self.mode, self.log_group, self.low_bits))
        self._decoder = self._read_code(reader)
        self._symbols = n + (1 << self.log_group) - 1 >> self.log_group
        self._read_chunks(reader)
        self._raw = reader.take(packed_size(n, self.low_bits), "low bits")

    def _read_code(self, reader: Reader) -> Decoder:
        if self.mode == Mode.CUSTOM:
            return make_decoder(_read_lengths(reader))
        byte = reader.byte("static code")
        expect(byte >> 4 < len(Shape), "static code: no such shape")
        shape, level = Shape(byte >> 4), byte & 15
        reader.note(f"{shape.name.capitalize()}, level {level}")
        return static_code(self.log_group, shape, level).decoder

    def _read_chunks(self, reader: Reader) -> None:
        count = -(-self._symbols // CHUNK_SYMBOLS)
        data = reader.take(2 * count, "chunk sizes")
        sizes = [int.from_bytes(data[i : i + 2], "little") for i in range(0, 2 * count, 2)]
        if sizes:
            reader.note(", ".join(map(str, sizes)))
        for c, size in enumerate(sizes):
            chunk = reader.inner(size, "chunk")
            chunk.part = f"{reader.part}: chunk {c}" if reader.part else f"chunk {c}"
            self._chunks.append(chunk)

    def symbols(self) -> Tensor:
        """Symbols of a Huffman-coded sequence, uint8."""
        parts = [torch.empty(0, dtype=torch.uint8)]
        for c, chunk in enumerate(self._chunks):
            m = min(CHUNK_SYMBOLS, self._symbols - c * CHUNK_SYMBOLS)
            parts.append(decode_streams(_read_streams(chunk, m), self._decoder, m))
        return torch.cat(parts)

    def all_values(self) -> Tensor:
        """All values, int64."""
        if self.mode == Mode.PACKED:
            return unpack_bits(self._raw, self.width, self.n)
        high = ungroup(self.symbols(), self.log_group, self.n)
        return high << self.low_bits | unpack_bits(self._raw, self.low_bits, self.n)

    def values(self, limit: int, field: str) -> Tensor:
        """All values, each below ``limit``."""
        values = self.all_values()
        if self.n and int(values.max()) >= limit:
            raise FormatError(f"{field}: {int(values.max())} is not below {limit}")
        return values


def _kind_text(mode: Mode, log_group: int, low_bits: int) -> str:
    text = mode.name.lower()
    if log_group:
        return f"{text}, groups of {1 << log_group}"
    return f"{text}, low bits {low_bits}" if low_bits else text


def _read_lengths(reader: Reader) -> Lengths:
    last = reader.byte("last symbol")
    live_bytes = reader.take(last // 8 + 1, "live symbols")
    live = unpack_bits(live_bytes, 1, len(live_bytes) * 8)
    expect(
        bool(live[last]) and not live[last + 1 :].any(),
        "live symbols: the last symbol is not the last live one",
    )
    symbols = live.nonzero().flatten().tolist()
    reader.note(f"{len(symbols)} symbols")
    stored = unpack_bits(reader.take((len(symbols) + 1) // 2, "code lengths"), 4, len(symbols)).tolist()
    reader.note(" ".join(map(str, stored)))
    lengths = [0] * 256
    for symbol, length in zip(symbols, stored, strict=True):
        expect(1 <= length <= MAX_CODE_LENGTH, "code lengths: outside 1..12")
        lengths[symbol] = length
    expect(is_complete(tuple(lengths)), "code lengths: they do not form a complete prefix code")
    return tuple(lengths)


def _read_streams(chunk: Reader, m: int) -> list[bytes]:
    if m < MANY_STREAMS:
        return [chunk.take(chunk.left, "one stream")]
    field = _size_field(m)
    expect(chunk.left >= (STREAMS - 1) * field, "stream sizes: the chunk is too short for them")
    header = from_bytes(chunk.take((STREAMS - 1) * field, "stream sizes"), torch.uint8)
    sizes = unpack_bits(bytes(header.tolist()), 8 * field, STREAMS - 1).tolist()
    expect(sum(sizes) <= chunk.left, "stream sizes: they exceed the chunk")
    sizes.append(chunk.left - sum(sizes))
    chunk.note(", ".join(map(str, sizes[:-1])))
    data = chunk.take(chunk.left, "six streams")
    ends = torch.tensor(sizes).cumsum(0).tolist()
    return [data[end - size : end] for size, end in zip(sizes, ends, strict=True)]
