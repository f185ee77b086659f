"""Group: 2, 4 or 8 small digits become one 8-bit symbol, the first digit lowest.

A Huffman code over groups spends fractions of a bit per digit. ``2^log_group`` digits of
``8 >> log_group`` bits each fill the eight bits of a symbol.
"""

from __future__ import annotations

import torch
from torch import Tensor


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
