"""The interface that every source of samples fulfills.

The order of an epoch's samples depends on the source, its seed, the epoch and the number of
streams that it is divided into (``streams``; a source that reads nothing has one). All numbers of
ranks that have the same streams train on the same global batches. An epoch that was begun goes on
with its streams on any number of ranks.

A sample consists of dense features and categorical features. Each of the latter has its number of
rows.

Global batch ``k`` is samples ``[k * global_batch, (k + 1) * global_batch)`` in the epoch's order,
those of each stream together. The last one may be short. Rank ``r`` gets
``[r * n // ranks, (r + 1) * n // ranks)`` of the ``n`` samples of a batch, or, of streams, one more
or less. A part may be empty. The parts of all ranks, one after the other, are the batch. A
``start`` inside a batch yields the rest of that batch first, then whole batches.
Shape legend: ``B`` samples, ``F`` dense features.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from math import isqrt
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from laconic.data.hashing import Words, mix64
from laconic.errors import ConfigError
from laconic.lookups import Lookups

__all__ = [
    "SPLITS",
    "Categorical",
    "Samples",
    "Schema",
    "Source",
    "check_batches",
    "check_split",
    "permute",
    "rank_slices",
    "shuffled",
]


@dataclass(frozen=True, slots=True)
class Categorical:
    """A feature that is looked up in an embedding table of its own."""

    name: str

    rows: int
    """Rows of its table; every id is in [0, rows). An extra row for unknown ids is counted."""

    bag: bool = False
    """Whether a sample has any number of ids, none included, rather than exactly one."""

    def __post_init__(self) -> None:
        if self.rows < 1:
            raise ConfigError(f"schema: {self.name!r} needs at least one row, got {self.rows}")


@dataclass(frozen=True, slots=True)
class Schema:
    """Names and sizes of all features, in the order in which samples hold them."""

    dense: tuple[str, ...]
    categorical: tuple[Categorical, ...]

    def __post_init__(self) -> None:
        if not self.categorical:
            raise ConfigError("schema: expected at least one categorical feature, got none")
        names = [*self.dense, *(feature.name for feature in self.categorical)]
        twice = sorted(name for name, count in Counter(names).items() if count > 1)
        if twice:
            raise ConfigError(f"schema: names must differ, got more than one {', '.join(map(repr, twice))}")

    @property
    def tables(self) -> int:
        """Number of categorical features."""
        return len(self.categorical)

    @property
    def rows(self) -> tuple[int, ...]:
        """Rows of every table."""
        return tuple(feature.rows for feature in self.categorical)

    @property
    def total_rows(self) -> int:
        """Rows of all tables together."""
        return sum(self.rows)

    @property
    def has_bags(self) -> bool:
        """Whether any feature may have other than one id."""
        return any(feature.bag for feature in self.categorical)


@dataclass(frozen=True, slots=True, eq=False)
class Samples:
    """Any number of samples. Without any, tensors keep their number of dimensions."""

    label_B: Tensor
    """Labels as float32, 0 or 1."""

    dense_BF: Tensor
    """Dense features as float32; all are finite."""

    lookups: Lookups
    """One table for every categorical feature of the schema, in its order; ids are in [0, rows)."""

    def __len__(self) -> int:
        return int(self.label_B.shape[0])


class Source(Protocol):
    """A set of samples in two splits, "train" (shuffled each epoch) and "eval" (in one order)."""

    schema: Schema

    def samples_in(self, split: str) -> int:
        """Count the samples of an epoch, over all ranks."""
        ...

    def streams(self, split: str, ranks: int) -> int:
        """Return the number of streams that an epoch is divided into for so many ranks."""
        ...

    def batches(
        self,
        split: str,
        *,
        global_batch: int,
        rank: int,
        ranks: int,
        epoch: int = 0,
        start: int = 0,
        streams: int | None = None,
    ) -> Iterator[Samples]:
        """Yield this rank's slice of every global batch, from global sample ``start`` on.

        Every rank yields the same number of batches; a batch may be empty. ``start`` yields the
        samples that follow there, bit for bit, without reading everything before them. ``streams``:
        those that the epoch was begun with, if not those of so many ranks.
        """
        ...

    def lookups_in_order(self, split: str) -> Iterator[Lookups]:
        """Yield the lookups of all samples of a split, in the order of the files."""
        ...


_ROUNDS = 6
_SHORT = 1024


def permute(position: NDArray[np.int64], n: int, key: np.uint64) -> NDArray[np.int64]:
    """Return where each position in ``[0, n)`` goes; a bijection for every key.

    A number is seen as a pair ``(high, low)`` of digits, ``low < a`` and ``high < b``, where ``a``
    is about the root of ``n`` and ``a * b`` just holds ``n``. Each round adds a hash of one digit
    to the other, modulo its base. This is a Feistel network, so it is a bijection. The few numbers
    that land in ``[n, a * b)`` are permuted again until they land inside. Short ranges have digits
    with too few values to be mixed well. They are sorted by their hashes instead.
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
    for number in range(_ROUNDS):
        tweak = key ^ np.uint64(number << 60)
        if number % 2:
            high = (high + mix64(low ^ tweak) % high_base) % high_base
        else:
            low = (low + mix64(high ^ tweak) % low_base) % low_base
    return high * low_base + low


def shuffled(n: int, key: np.uint64) -> NDArray[np.int64]:
    """Return all of ``[0, n)`` in an order that is drawn by the key.

    The order is that of their hashes. Two passes of a radix sort bring nearly all of them in order,
    and a sort that is fast for those does the rest.
    """
    bits = np.uint64(max(n - 1, 1).bit_length())
    number = np.arange(n, dtype=np.uint64)
    drawn = mix64(number ^ key)
    drawn >>= bits
    drawn <<= bits
    drawn |= number
    for shift in (32, 48):
        digit = (drawn >> np.uint64(shift)).astype(np.uint16)
        drawn = drawn.take(digit.argsort(kind="stable"))
    drawn.sort(kind="stable")
    drawn &= (np.uint64(1) << bits) - np.uint64(1)
    return drawn.view(np.int64)


SPLITS = ("train", "eval")


def check_split(split: str) -> None:
    """Refuse a split that does not exist."""
    if split not in SPLITS:
        raise ConfigError(f"data: no split {split!r} (known: {', '.join(SPLITS)})")


def check_batches(total: int, *, global_batch: int, rank: int, ranks: int, start: int) -> None:
    """Refuse what cannot be asked of an epoch of so many samples."""
    if global_batch < 1:
        raise ConfigError(f"data: global_batch must be at least 1, got {global_batch}")
    if not 0 <= rank < ranks:
        raise ConfigError(f"data: rank must be in 0..{ranks - 1} of {ranks} ranks, got {rank}")
    if not 0 <= start <= total:
        raise ConfigError(f"data: start must be in 0..{total}, got {start}; the epoch has {total} samples")


def rank_slices(
    total: int, *, global_batch: int, rank: int, ranks: int, start: int = 0
) -> Iterator[tuple[int, int]]:
    """Yield the positions ``[begin, end)`` of this rank in every global batch from ``start`` on.

    Every rank gets the same number of slices. Arguments are checked before the first one.
    """
    check_batches(total, global_batch=global_batch, rank=rank, ranks=ranks, start=start)
    return _slices(total, global_batch, rank, ranks, start)


def _slices(total: int, global_batch: int, rank: int, ranks: int, start: int) -> Iterator[tuple[int, int]]:
    begin = start
    while begin < total:
        end = min(begin - begin % global_batch + global_batch, total)
        count = end - begin
        yield begin + rank * count // ranks, begin + (rank + 1) * count // ranks
        begin = end
