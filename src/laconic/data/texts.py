"""Many texts as two arrays, and hashes of all of them at once.

Text ``n`` is ``data[offsets[n] : offsets[n + 1]]``, as Arrow has it. Its hash is that of a polynomial::

    sum of weight[byte k] * BASE ** k   mod 2 ** 64, with the length, mixed

or, of a text that is longer than a piece, that of ``stable_hash``, which takes less memory. It is no hash to store: it
may change with a version. Whoever finds a text by it compares the bytes too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from laconic.data.hashing import Words, hash_texts, key64, mix64

__all__ = ["Texts"]

Ints = NDArray[np.int64]

_BASE = 0x9E3779B97F4A7C15
_WEIGHT = mix64(np.arange(256, dtype=np.uint64) ^ key64("texts"))
_PIECE_BYTES = 1 << 17  # bytes hashed at a time: what is computed meanwhile stays in the cache


@dataclass(frozen=True, slots=True, eq=False)
class Texts:
    """Texts one after the other."""

    data: NDArray[np.uint8]

    offsets: Ints
    """One more than there are texts, ascending from 0 to the size of ``data``."""

    def __len__(self) -> int:
        return int(self.offsets.size) - 1

    @classmethod
    def of(cls, values: Sequence[bytes]) -> Texts:
        """Put bytes one after the other."""
        offsets = np.zeros(len(values) + 1, dtype=np.int64)
        np.cumsum([len(value) for value in values], out=offsets[1:])
        return cls(np.frombuffer(b"".join(values), dtype=np.uint8), offsets)

    @classmethod
    def of_arrow(cls, values: Any) -> Texts:
        """Share the memory of an Arrow array of string or large_string; null is an empty text."""
        kind = np.int64 if str(values.type).startswith("large") else np.int32
        _, offsets, data = values.buffers()
        if not len(values) or offsets is None:
            return cls(np.empty(0, dtype=np.uint8), np.zeros(len(values) + 1, dtype=np.int64))
        held = np.frombuffer(offsets, dtype=kind)[values.offset : values.offset + len(values) + 1]
        begin, end = int(held[0]), int(held[-1])
        text = np.frombuffer(data, dtype=np.uint8)[begin:end] if end > begin else np.empty(0, dtype=np.uint8)
        return cls(text, held.astype(np.int64) - begin)

    def hashes(self) -> Words:
        """Hash every text."""
        found = np.empty(len(self), dtype=np.uint64)
        begin = 0
        while begin < len(self):
            reach = np.searchsorted(self.offsets, self.offsets[begin] + _PIECE_BYTES, side="right")
            end = int(reach) - 1
            if end > begin:
                found[begin:end] = self._hash(begin, end)
            else:
                end = begin + 1
                text = self.data[self.offsets[begin] : self.offsets[end]].tobytes()
                found[begin] = hash_texts([text])[0]
            begin = end
        return found

    def equal(self, index: Ints, other: Texts, other_index: Ints) -> NDArray[np.bool_]:
        """Compare texts of this list with texts of another, pair by pair."""
        lengths = self.offsets[index + 1] - self.offsets[index]
        same: NDArray[np.bool_] = lengths == other.offsets[other_index + 1] - other.offsets[other_index]
        some = np.flatnonzero(same & (lengths > 0))
        begins = np.concatenate([[0], np.cumsum(lengths[some])])
        place = np.arange(begins[-1])
        mine = place + np.repeat(self.offsets[index[some]] - begins[:-1], lengths[some])
        theirs = place + np.repeat(other.offsets[other_index[some]] - begins[:-1], lengths[some])
        wrong = np.flatnonzero(self.data[mine] != other.data[theirs])
        same[some[np.searchsorted(begins, wrong, side="right") - 1]] = False
        return same

    def _hash(self, begin: int, end: int) -> Words:
        offsets = self.offsets[begin : end + 1] - self.offsets[begin]
        size = int(offsets[-1])
        powers, inverses = _powers(_PIECE_BYTES)
        sums = np.zeros(size + 1, dtype=np.uint64)
        data = self.data[self.offsets[begin] : self.offsets[begin] + size]
        np.cumsum(_WEIGHT[data] * powers[:size], out=sums[1:])
        hashes = (sums[offsets[1:]] - sums[offsets[:-1]]) * inverses[offsets[:-1]]
        return mix64(hashes + np.diff(offsets).view(np.uint64))


@cache
def _powers(size: int) -> tuple[Words, Words]:
    """Powers of the base and of its inverse, from 0 to ``size``."""
    return _powers_of(_BASE, size + 1), _powers_of(pow(_BASE, -1, 1 << 64), size + 1)


def _powers_of(base: int, count: int) -> Words:
    factors = np.full(count, base, dtype=np.uint64)
    factors[0] = 1
    return np.cumprod(factors)
