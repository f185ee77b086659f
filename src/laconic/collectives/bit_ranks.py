"""A set of numbers that says of any number whether it is a member, and how many smaller members there are.

One bit for each number that there could be, and a count before every eight of them: 5 bits a number where a map takes 32,
for sets of which nobody knows how large they get. Shape legend: ``M`` members, ``Q`` questions.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["BitRanks"]

Ints = NDArray[np.int64]
_ONES = np.array([bits.bit_count() for bits in range(256)], np.uint8)


class BitRanks:
    """Numbers below ``size``."""

    def __init__(self, size: int, members_M: Ints) -> None:
        """``members_M``: in any order, each once."""
        self.count = len(members_M)
        self._bits = np.zeros(-(-size // 8), np.uint8)
        np.bitwise_or.at(self._bits, members_M >> 3, _bit(members_M))
        ones = _ONES[self._bits]
        self._before: NDArray[Any] = np.cumsum(ones, dtype=np.uint32 if self.count < 2**32 else np.uint64)
        self._before -= ones

    def find(self, number_Q: Ints) -> tuple[NDArray[np.bool_], Ints]:
        """Which of these are members, and how many smaller ones there are."""
        byte_Q, bit_Q = self._bits[number_Q >> 3], _bit(number_Q)
        smaller_Q = _ONES[byte_Q & (bit_Q - 1)].astype(np.int64) + self._before[number_Q >> 3].astype(
            np.int64
        )
        return (byte_Q & bit_Q) != 0, smaller_Q

    def members(self, start: int, stop: int) -> Ints:
        """Return the members from ``start`` up to ``stop``, ascending."""
        first = start // 8
        bits = np.unpackbits(self._bits[first : -(-stop // 8)], bitorder="little")
        found: Ints = np.flatnonzero(bits[start - 8 * first : stop - 8 * first]) + start
        return found


def _bit(number: Ints) -> NDArray[np.uint8]:
    return np.left_shift(np.uint8(1), (number & 7).astype(np.uint8))
