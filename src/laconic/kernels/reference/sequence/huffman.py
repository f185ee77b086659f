"""Huffman streams: symbols to bits, most significant bit first::

    symbols   0 1 2 3 | 4 5 6 7 | ...      quads of neighbors take turns:
    stream    0         1         ... 5 0  quad q goes to stream q mod 6

A stream ends with its last code; zero bits complete the last byte.
"""

from __future__ import annotations

import torch
from torch import Tensor

from laconic.kernels.reference.byte_io import expect
from laconic.kernels.reference.sequence.huffman_code import Decoder

STREAMS = 6
QUAD = 4


def _stream_of(n: int, streams: int) -> Tensor:
    """Stream that each of ``n`` symbols belongs to."""
    return torch.arange(n) // QUAD % streams


def encode_streams(symbols_M: Tensor, codes: list[str], streams: int) -> list[bytes]:
    """Distribute the symbols' codes over the streams."""
    turn = _stream_of(len(symbols_M), streams)
    return [_encode_stream(symbols_M[turn == k].tolist(), codes) for k in range(streams)]


def _encode_stream(symbols: list[int], codes: list[str]) -> bytes:
    bits = "".join([codes[symbol] for symbol in symbols])
    size = (len(bits) + 7) // 8
    return int(bits.ljust(8 * size, "0"), 2).to_bytes(size, "big")


def decode_streams(streams: list[bytes], decoder: Decoder, m: int) -> Tensor:
    """Undo ``encode_streams``: ``m`` symbols, uint8."""
    turn = _stream_of(m, len(streams))
    symbols = torch.empty(m, dtype=torch.uint8)
    for k, data in enumerate(streams):
        mine = turn == k
        decoded = _decode_stream(data, decoder, int(mine.sum()))
        symbols[mine] = torch.tensor(decoded, dtype=torch.uint8)
    return symbols


def _decode_stream(data: bytes, decoder: Decoder, count: int) -> list[int]:
    padded = data + bytes(3)
    bit, end = 0, 8 * len(data)
    mask = (1 << decoder.log_size) - 1
    symbols = []
    for _ in range(count):
        if bit > end:
            break
        at = bit >> 3
        window = padded[at] << 16 | padded[at + 1] << 8 | padded[at + 2]
        symbol, length = decoder.table[window >> 24 - decoder.log_size - (bit & 7) & mask]
        symbols.append(symbol)
        bit += length
    expect((bit + 7) // 8 == len(data), "stream: it does not end where its size says")
    return symbols
