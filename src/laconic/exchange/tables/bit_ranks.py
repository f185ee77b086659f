"""A set of numbers that says of any number whether it is a member, and how many smaller members there are.

One bit for each number that there could be, and a count before every 64 of them: 1.5 bits a number where a map takes 32,
for sets of which nobody knows how large they get. Shape legend: ``M`` members, ``Q`` questions.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["BitRanks"]

Ints = NDArray[np.int64]
Words = NDArray[np.uint64]
_TWOS, _FOURS, _EIGHTS, _ALL = (np.uint64(int(byte * 8, 16)) for byte in ("55", "33", "0f", "01"))


class BitRanks:
    """Numbers below ``size``."""

    def __init__(self, size: int, members_M: Ints) -> None:
        """``members_M``: in any order, each once."""
        self.count = len(members_M)
        self._words = np.zeros(-(-size // 64), "<u8")
        np.bitwise_or.at(self._words, members_M >> 6, _bit(members_M))
        ones = _ones(self._words)
        before = np.cumsum(ones) - ones
        self._before = before.astype(np.uint32) if self.count < 2**32 else before

    def find(self, number_Q: Ints) -> tuple[NDArray[np.bool_], Ints]:
        """Which of these are members, and how many smaller ones there are."""
        word_Q, bit_Q = self._words[number_Q >> 6], _bit(number_Q)
        smaller_Q = _ones(word_Q & (bit_Q - np.uint64(1))) + self._before[number_Q >> 6]
        return (word_Q & bit_Q) != 0, smaller_Q

    def members(self, start: int, stop: int) -> Ints:
        """Return the members from ``start`` up to ``stop``, ascending."""
        first = start // 64
        bits = np.unpackbits(self._words[first : -(-stop // 64)].view(np.uint8), bitorder="little")
        found: Ints = np.flatnonzero(bits[start - 64 * first : stop - 64 * first]) + start
        return found


def _bit(number: Ints) -> Words:
    return np.left_shift(np.uint64(1), (number & 63).astype(np.uint64))


def _ones(words: Words) -> Ints:
    """Count the bits of each word that are set: in pairs, fours, eights, and all; numpy 1 has nothing for it."""
    pairs = words - (words >> np.uint64(1) & _TWOS)
    fours = (pairs & _FOURS) + (pairs >> np.uint64(2) & _FOURS)
    eights = fours + (fours >> np.uint64(4)) & _EIGHTS
    counted: Ints = (eights * _ALL >> np.uint64(56)).astype(np.int64)
    return counted
