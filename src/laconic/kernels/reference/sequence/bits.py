"""Numbers of a fixed width, back to back, least significant bit first.

Bit ``k`` of value ``i`` is bit ``(i * width + k) mod 8`` of byte ``(i * width + k) div 8``; bits
after the last value are written as zero and not read. In a group, 2, 4 or 8 small digits become one
8-bit symbol, the first digit lowest. A Huffman code over groups can spend fractions of a bit on a
digit.
"""

from __future__ import annotations

import torch
from torch import Tensor

from laconic.kernels.reference.byte_io import from_bytes, to_bytes


def packed_size(n: int, width: int) -> int:
    """Bytes that ``n`` values take."""
    return (n * width + 7) // 8


def pack_bits(values_N: Tensor, width: int) -> bytes:
    """Pack values below ``2^width``."""
    if not width or not len(values_N):
        return b""
    bits = (values_N.to(torch.int64)[:, None] >> torch.arange(width) & 1).to(torch.uint8).flatten()
    padded = torch.nn.functional.pad(bits, (0, -len(bits) % 8)).reshape(-1, 8)
    return to_bytes((padded << torch.arange(8, dtype=torch.uint8)).sum(dim=1, dtype=torch.uint8))


def unpack_bits(data: bytes, width: int, n: int) -> Tensor:
    """Undo ``pack_bits``; int64."""
    if not width or not n:
        return torch.zeros(n, dtype=torch.int64)
    bits = from_bytes(data, torch.uint8)[:, None] >> torch.arange(8, dtype=torch.uint8) & 1
    bits_NW = bits.flatten()[: n * width].reshape(n, width)
    return (bits_NW.to(torch.int64) << torch.arange(width)).sum(dim=1)


def digit_bits(log_group: int) -> int:
    """Bits of one digit."""
    return 8 >> log_group


def group(digits_N: Tensor, log_group: int) -> Tensor:
    """Make symbols (uint8) of digits; zeros complete the last symbol."""
    size = 1 << log_group
    padded = torch.nn.functional.pad(digits_N.to(torch.int64), (0, -len(digits_N) % size))
    shifts = torch.arange(size) * digit_bits(log_group)
    return (padded.reshape(-1, size) << shifts).sum(dim=1).to(torch.uint8)


def ungroup(symbols_M: Tensor, log_group: int, n: int) -> Tensor:
    """Undo ``group``: the first ``n`` digits, int64."""
    width = digit_bits(log_group)
    shifts = torch.arange(1 << log_group) * width
    digits = symbols_M.to(torch.int64)[:, None] >> shifts & (1 << width) - 1
    return digits.flatten()[:n]
