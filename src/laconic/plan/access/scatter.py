"""A bijection of ids that leaves no order in them, and its inverse.

An id's *place* is a 64-bit word as good as drawn at random, the same in every run. Counters keep ids sorted by place:
the first k of them are then a fair sample of all ids, and their ids can be had back. The steps are those of
splitmix64's finalizer; the key keeps the sample apart from hashes that data may have been split or bucketed by.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["gather", "scatter"]

_KEY = 0x6A09E667F3BCC909
_STEPS = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB), (31, 1))
_WORD = 1 << 64


def scatter(ids: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Place of every id."""
    x = ids.astype(np.uint64)
    x ^= np.uint64(_KEY)
    for shift, factor in _STEPS:
        x ^= x >> np.uint64(shift)
        x *= np.uint64(factor)
    return x


def gather(places: NDArray[np.uint64]) -> NDArray[np.int64]:
    """Id at every place."""
    x = places.astype(np.uint64)
    for shift, factor in reversed(_STEPS):
        x *= np.uint64(pow(factor, -1, _WORD))
        shifted = x >> np.uint64(shift)
        while shifted.any():  # x ^ x >> s ^ x >> 2s ... undoes x ^ x >> s
            x ^= shifted
            shifted >>= np.uint64(shift)
    x ^= np.uint64(_KEY)
    return x.view(np.int64)
