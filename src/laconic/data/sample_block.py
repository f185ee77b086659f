"""Decoded samples in memory, from which batches are gathered.

Ids are held column by column, and dense features sample by sample, as models take them.

Shape legend: ``N`` samples held, ``F`` dense features, ``K`` categorical features with one id each,
``R`` runs of samples that follow each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from laconic.data.source import Samples
from laconic.lookups import Lookups

__all__ = ["BagColumn", "SampleBlock", "SpareBlock"]

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class BagColumn:
    """The bags of one categorical feature.

    The bag of sample n is ``ids[offsets[n] : offsets[n + 1]]``.
    """

    ids: Ints
    offsets: Ints

    def take(self, index: Ints) -> BagColumn:
        """Copy the bags of some samples, in that order."""
        lengths = self.offsets[index + 1] - self.offsets[index]
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        source = np.arange(offsets[-1]) + np.repeat(self.offsets[index] - offsets[:-1], lengths)
        return BagColumn(self.ids[source], offsets)

    @classmethod
    def join(cls, parts: Sequence[BagColumn]) -> BagColumn:
        """Put the bags of all parts one after the other."""
        lengths = [np.zeros(1, dtype=np.int64), *(np.diff(part.offsets) for part in parts)]
        return cls(np.concatenate([part.ids for part in parts]), np.cumsum(np.concatenate(lengths)))


_SHORT = 32  # samples: shorter runs are faster gathered one by one


@dataclass(frozen=True, slots=True)
class SampleBlock:
    """Decoded samples; ``bags`` has the number of their table as key."""

    label_N: NDArray[np.float32]
    dense_NF: NDArray[np.float32]
    ids_KN: NDArray[Any]
    """Ids as int32 if all tables allow it, else as int64."""
    bags: dict[int, BagColumn]

    def take(self, index: Ints) -> SampleBlock:
        """Copy some samples, in that order."""
        return SampleBlock(
            self.label_N.take(index),
            self.dense_NF.take(index, axis=0),
            self.ids_KN.take(index, axis=1),
            {table: bags.take(index) for table, bags in self.bags.items()},
        )

    def runs(self, begin_R: Ints, count_R: Ints) -> SampleBlock:
        """Copy runs of samples, without bags: those from ``begin`` on, so many."""
        total = int(count_R.sum())
        if total < _SHORT * len(count_R):
            index = np.repeat(begin_R - np.cumsum(count_R) + count_R, count_R) + np.arange(total)
            return SampleBlock(self.label_N, self.dense_NF, self.ids_KN, {}).take(index)
        runs = [slice(*ends) for ends in zip(begin_R.tolist(), (begin_R + count_R).tolist(), strict=True)]
        return SampleBlock(
            np.concatenate([self.label_N[run] for run in runs]),
            np.concatenate([self.dense_NF[run] for run in runs]),
            # a cast on the way would wait longer for memory than one of what is then in the cache
            np.concatenate([self.ids_KN[:, run] for run in runs], axis=1),
            {},
        )

    @classmethod
    def join(cls, parts: Sequence[SampleBlock]) -> SampleBlock:
        """Put the samples of all parts one after the other."""
        if len(parts) == 1:
            return parts[0]
        return cls(
            np.concatenate([part.label_N for part in parts]),
            np.concatenate([part.dense_NF for part in parts]),
            np.concatenate([part.ids_KN for part in parts], axis=1),
            {table: BagColumn.join([part.bags[table] for part in parts]) for table in parts[0].bags},
        )

    def like(self, samples: int) -> SampleBlock:
        """Return memory for as many samples, without bags."""
        return SampleBlock(
            np.empty(samples, self.label_N.dtype),
            np.empty((samples, self.dense_NF.shape[1]), self.dense_NF.dtype),
            np.empty((len(self.ids_KN), samples), self.ids_KN.dtype),
            {},
        )

    def part(self, begin: int, end: int) -> SampleBlock:
        """Return samples in place, without bags."""
        return SampleBlock(self.label_N[begin:end], self.dense_NF[begin:end], self.ids_KN[:, begin:end], {})

    def samples(self) -> Samples:
        """Return samples as models take them. They share the block's memory; ``take`` copies."""
        return Samples(torch.from_numpy(self.label_N), torch.from_numpy(self.dense_NF), self._lookups())

    def _lookups(self) -> Lookups:
        if not self.bags:
            return Lookups.single(torch.from_numpy(self.ids_KN.astype(np.int64, copy=False)))
        tables = len(self.ids_KN) + len(self.bags)
        ids: list[Ints] = []
        lengths: list[Ints] = [np.zeros(1, dtype=np.int64)]
        one_hot = iter(self.ids_KN)
        ones = np.ones(self.label_N.size, dtype=np.int64)
        for table in range(tables):
            bags = self.bags.get(table)
            ids.append(next(one_hot).astype(np.int64) if bags is None else bags.ids)
            lengths.append(ones if bags is None else np.diff(bags.offsets))
        offsets = np.cumsum(np.concatenate(lengths))
        return Lookups(torch.from_numpy(np.concatenate(ids)), torch.from_numpy(offsets), tables)


class SpareBlock:
    """The memory of an epoch that ended, for the next: new memory takes long to be touched."""

    def __init__(self, empty: SampleBlock) -> None:
        """``empty``: a block without samples, like those to come."""
        self.empty = empty
        self._spare = empty

    def borrow(self, samples: int) -> SampleBlock:
        """Return memory for as many samples or more, without bags, that nobody else has."""
        spare, self._spare = self._spare, self.empty
        if spare.label_N.size >= samples:
            return spare
        del spare  # before there is more
        return self.empty.like(samples)

    def give_back(self, block: SampleBlock) -> None:
        """Keep a block that was borrowed, unless a larger one is there."""
        if block.label_N.size > self._spare.label_N.size:
            self._spare = block
