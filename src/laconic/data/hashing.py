"""Stable 64-bit hashing of whole arrays, and of texts: the finalizer of splitmix64, and BLAKE2.

The function is a bijection of 64-bit words and is part of what users store (hashed ids, splits):
it never changes. ``mix64(0) == 0``; give the words of one purpose a key of their own.

Texts are two arrays, as in Arrow: text ``n`` is ``data[offsets[n] : offsets[n + 1]]``. All of them
are hashed at once by a polynomial::

    sum of weight[byte k] * BASE ** k   mod 2 ** 64, with the length, mixed

A text that is longer than a piece is hashed by ``hash_texts``, which takes less memory. Do not
store these hashes: they may change with a version. Whoever finds a text by its hash compares the
bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Texts", "Words", "hash_texts", "key64", "mix64", "uniform", "unmix64"]


Words = NDArray[np.uint64]

_GOLDEN = 0x9E3779B97F4A7C15
_MASK = 0xFFFFFFFFFFFFFFFF
_STEPS = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB), (31, 1))


def mix64(words: NDArray[Any]) -> Words:
    """Hash every 64-bit integer (signed ones by their two's complement)."""
    x = words.astype(np.uint64)  # a copy, mixed in place
    shifted = np.empty_like(x)
    for shift, factor in _STEPS:
        np.right_shift(x, np.uint64(shift), out=shifted)
        np.bitwise_xor(x, shifted, out=x)
        if factor != 1:
            np.multiply(x, np.uint64(factor), out=x)
    return x


def unmix64(hashes: Words) -> Words:
    """Return the words that were hashed."""
    x = hashes.astype(np.uint64)
    for shift, factor in reversed(_STEPS):
        x *= np.uint64(pow(factor, -1, _MASK + 1))
        shifted = x >> np.uint64(shift)
        while shifted.any():  # x ^ x >> s ^ x >> 2s ... undoes x ^ x >> s
            x ^= shifted
            shifted >>= np.uint64(shift)
    return x


def key64(*parts: int | str) -> np.uint64:
    """Make a key of numbers and names, to be xor-ed to words before they are mixed."""
    key = 0
    for part in parts:
        for word in [part] if isinstance(part, int) else [len(part), *part.encode()]:
            key = _mix((key + _GOLDEN + word) & _MASK)
    return np.uint64(key)


def _mix(x: int) -> int:
    for shift, factor in _STEPS:
        x = ((x ^ (x >> shift)) * factor) & _MASK
    return x


def uniform(hashes: Words) -> NDArray[np.float64]:
    """Numbers in [0, 1) from the upper 53 bits of hashes."""
    scaled: NDArray[np.float64] = (hashes >> np.uint64(11)).astype(np.float64)
    scaled *= 2.0**-53
    return scaled


def hash_texts(texts: Sequence[bytes]) -> Words:
    """First 8 bytes (little-endian) of every BLAKE2b digest; integers are hashed by ``mix64``."""
    digests = b"".join([blake2b(text, digest_size=8).digest() for text in texts])
    return np.frombuffer(digests, dtype="<u8").astype(np.uint64)


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
