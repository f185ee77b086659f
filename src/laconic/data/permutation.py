"""A random permutation of ``[0, n)`` with random access: no array of length n.

A number is seen as a pair ``(high, low)`` of digits, ``low < a`` and ``high < b``, where ``a`` is about the root of
``n`` and ``a * b`` just holds ``n``. Each round adds a hash of one digit to the other, modulo its base: a Feistel
network, so a bijection. The few numbers that land in ``[n, a * b)`` go round again until they land inside.
Short ranges, where digits have too few values to be mixed well, are sorted by their hashes instead.
"""

from __future__ import annotations

from math import isqrt

import numpy as np
from numpy.typing import NDArray

from laconic.data.mix64 import Words, mix64

__all__ = ["permute"]

_ROUNDS = 6
_SHORT = 1024


def permute(position: NDArray[np.int64], n: int, key: np.uint64) -> NDArray[np.int64]:
    """Say where each position in ``[0, n)`` goes; a bijection for every key."""
    if n <= _SHORT:
        return np.argsort(mix64(np.arange(n) ^ key.astype(np.int64)), kind="stable")[position]
    low_base = isqrt(n)
    high_base = -(-n // low_base)
    x = position.astype(np.uint64)
    outside = np.arange(x.size)
    while outside.size:
        x[outside] = _rounds(x[outside], np.uint64(low_base), np.uint64(high_base), key)
        outside = outside[x[outside] >= n]
    return x.astype(np.int64)


def _rounds(x: Words, low_base: np.uint64, high_base: np.uint64, key: np.uint64) -> Words:
    high, low = np.divmod(x, low_base)
    for turn in range(_ROUNDS):
        tweak = key ^ np.uint64(turn << 60)
        if turn % 2:
            high = (high + mix64(low ^ tweak) % high_base) % high_base
        else:
            low = (low + mix64(high ^ tweak) % low_base) % low_base
    return high * low_base + low
