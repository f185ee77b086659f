"""The order of an epoch, and who gets which of its samples.

Global batch ``k`` is samples ``[k * global_batch, (k + 1) * global_batch)`` of the epoch's order; the last
one may be short. Of its ``n`` samples, rank ``r`` gets ``[r * n // ranks, (r + 1) * n // ranks)``, which may
be none. A ``start`` inside a batch yields the rest of that batch first, then whole ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import isqrt

import numpy as np
from numpy.typing import NDArray

from laconic.data.hashing import Words, mix64
from laconic.errors import ConfigError

__all__ = ["SPLITS", "check_split", "permute", "rank_slices"]


_ROUNDS = 6
_SHORT = 1024


def permute(position: NDArray[np.int64], n: int, key: np.uint64) -> NDArray[np.int64]:
    """Say where each position in ``[0, n)`` goes; a bijection for every key.

    A number is seen as a pair ``(high, low)`` of digits, ``low < a`` and ``high < b``, where ``a`` is about
    the root of ``n`` and ``a * b`` just holds ``n``. Each round adds a hash of one digit to the other, modulo
    its base: a Feistel network, so a bijection. The few numbers that land in ``[n, a * b)`` go round again
    until they land inside. Short ranges, where digits have too few values to be mixed well, are sorted by
    their hashes instead.
    """
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


SPLITS = ("train", "eval")


def check_split(split: str) -> None:
    """Refuse a split that does not exist."""
    if split not in SPLITS:
        raise ConfigError(f"data: no split {split!r} (known: {', '.join(SPLITS)})")


def rank_slices(
    total: int, *, global_batch: int, rank: int, ranks: int, start: int = 0
) -> Iterator[tuple[int, int]]:
    """Positions ``[begin, end)`` of this rank in every global batch from ``start`` on.

    Every rank gets the same number of slices. Arguments are checked before the first one is asked for.
    """
    if global_batch < 1:
        raise ConfigError(f"data: global_batch must be at least 1, got {global_batch}")
    if not 0 <= rank < ranks:
        raise ConfigError(f"data: rank must be in 0..{ranks - 1} of {ranks} ranks, got {rank}")
    if not 0 <= start <= total:
        raise ConfigError(f"data: start must be in 0..{total}, got {start}; the epoch has {total} samples")
    return _slices(total, global_batch, rank, ranks, start)


def _slices(total: int, global_batch: int, rank: int, ranks: int, start: int) -> Iterator[tuple[int, int]]:
    begin = start
    while begin < total:
        end = min(begin - begin % global_batch + global_batch, total)
        count = end - begin
        yield begin + rank * count // ranks, begin + (rank + 1) * count // ranks
        begin = end
