"""Huffman streams: symbols to bits, most significant bit first::

    symbols   0 1 2 3 | 4 5 6 7 | ...      quads of neighbors take turns:
    stream    0         1         ... 5 0  quad q goes to stream q mod 6

A stream ends with its last code; zero bits complete the last byte.

A code is the tuple of its 256 lengths, 0 where the symbol does not occur. Lengths are at most 12
and fill the code space exactly (Kraft sum 1), so every bit string decodes to something. Codes are
canonical: shorter ones first, equal lengths by symbol, counting up from zero. Costs are estimated
in integers, 2^-16 of a bit, so that every encoder decides alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

from laconic.kernels.reference.byte_io import expect

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


MAX_CODE_LENGTH = 12

Lengths = tuple[int, ...]


def log2_q16(x: int) -> int:
    """2^16 * log2(x) from the top nine bits of x, x >= 1."""
    top = x.bit_length() - 1
    mantissa = x >> top - 8 if top >= 8 else x << 8 - top
    return (top << 16) + _log_fraction(mantissa & 255)


@cache
def _log_fraction(i: int) -> int:
    """2^16 * log2(1 + i / 256), rounded down, by repeated squaring with 30 fraction bits."""
    m, result = 256 + i << 22, 0
    for _ in range(16):
        m = m * m >> 30
        result <<= 1
        if m >> 31:
            result |= 1
            m >>= 1
    return result


def entropy_q16(counts: Sequence[int]) -> int:
    """Sum of count * log2(total / count)."""
    total = sum(counts)
    return total * log2_q16(total) - sum(c * log2_q16(c) for c in counts if c > 1) if total else 0


def code_lengths(counts: Sequence[int]) -> Lengths:
    """Lengths of a complete code for 256 counts, at least two of them positive."""
    leaves = sorted((count, symbol) for symbol, count in enumerate(counts) if count)
    depths = _limit(_huffman_depths([count for count, _ in leaves]))
    lengths = [0] * 256
    for (_, symbol), depth in zip(leaves, depths, strict=True):
        lengths[symbol] = depth
    return tuple(lengths)


def _huffman_depths(weights: list[int]) -> list[int]:
    """Depth of every leaf, from ascending weights.

    Two queues: the leaves, and the inner nodes in the order of their making; a leaf goes first on
    a tie. The order decides between trees of equal cost, so it is part of the specification.
    """
    n = len(weights)
    inner: list[int] = []
    parent_of_leaf: list[int] = []
    parent_of_inner: list[int] = []
    for made in range(n - 1):
        total = 0
        for _ in range(2):
            leaf, node = len(parent_of_leaf), len(parent_of_inner)
            if leaf < n and (node == made or weights[leaf] <= inner[node]):
                total += weights[leaf]
                parent_of_leaf.append(made)
            else:
                total += inner[node]
                parent_of_inner.append(made)
        inner.append(total)
    depth = [0] * (n - 1)
    for i in range(n - 3, -1, -1):
        depth[i] = depth[parent_of_inner[i]] + 1
    return [depth[parent] + 1 for parent in parent_of_leaf]


def _limit(depths: list[int]) -> list[int]:
    """Cut depths, rarest symbol first, to 12 and make the code complete again.

    Cutting takes more code space than there is: the rarest symbols that still can become longer do,
    one bit each in turn; what that frees too much goes to the most frequent ones.
    """
    n = len(depths)
    lengths = [min(depth, MAX_CODE_LENGTH) for depth in depths]
    room = 1 << MAX_CODE_LENGTH
    room -= sum(1 << MAX_CODE_LENGTH - length for length in lengths)
    i = 0
    while room < 0:
        if lengths[i] < MAX_CODE_LENGTH:
            lengths[i] += 1
            room += 1 << MAX_CODE_LENGTH - lengths[i]
        i = (i + 1) % n
    i = n - 1
    while room > 0:
        gain = 1 << MAX_CODE_LENGTH - lengths[i]
        if lengths[i] > 1 and gain <= room:
            room -= gain
            lengths[i] -= 1
        i = i - 1 if i else n - 1
    return lengths


def is_complete(lengths: Lengths) -> bool:
    """Whether every bit string is a sequence of codes."""
    return sum(1 << MAX_CODE_LENGTH - length for length in lengths if length) == 1 << MAX_CODE_LENGTH


def canonical_codes(lengths: Lengths) -> list[str]:
    """Each symbol's code as a string of 0 and 1; empty where it has none."""
    codes = [""] * 256
    code, previous = 0, 0
    for length, symbol in sorted((length, symbol) for symbol, length in enumerate(lengths) if length):
        code <<= length - previous
        codes[symbol] = format(code, f"0{length}b")
        code, previous = code + 1, length
    return codes


@dataclass(frozen=True, slots=True)
class Decoder:
    """Symbol and length for every value of the next ``log_size`` bits."""

    log_size: int
    table: list[tuple[int, int]]


def make_decoder(lengths: Lengths) -> Decoder:
    """Turn a complete code into its table."""
    log_size = max(lengths)
    table: list[tuple[int, int]] = []
    for length, symbol in sorted((length, symbol) for symbol, length in enumerate(lengths) if length):
        table += [(symbol, length)] * (1 << log_size - length)
    return Decoder(log_size, table)
