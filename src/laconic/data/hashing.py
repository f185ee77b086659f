"""Stable 64-bit hashing of whole arrays, and of texts: the finalizer of splitmix64, and BLAKE2.

The function is a bijection of 64-bit words and is part of what users store (hashed ids, splits):
it never changes. ``mix64(0) == 0``; give the words of one purpose a key of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Words", "hash_texts", "key64", "mix64", "uniform", "unmix64"]


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
