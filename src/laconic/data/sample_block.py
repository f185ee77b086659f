"""Decoded samples in memory, column by column, from which batches are gathered.

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

__all__ = ["BagColumn", "SampleBlock"]

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
    dense_FN: NDArray[np.float32]
    ids_KN: NDArray[Any]
    """Ids as int32 if all tables allow it, else as int64."""
    bags: dict[int, BagColumn]

    def take(self, index: Ints) -> SampleBlock:
        """Copy some samples, in that order."""
        return SampleBlock(
            self.label_N.take(index),
            self.dense_FN.take(index, axis=1),
            self.ids_KN.take(index, axis=1),
            {table: bags.take(index) for table, bags in self.bags.items()},
        )

    def runs(self, begin_R: Ints, count_R: Ints) -> SampleBlock:
        """Copy runs of samples, without bags: those from ``begin`` on, so many."""
        total = int(count_R.sum())
        if total < _SHORT * len(count_R):
            index = np.repeat(begin_R - np.cumsum(count_R) + count_R, count_R) + np.arange(total)
            return SampleBlock(self.label_N, self.dense_FN, self.ids_KN, {}).take(index)
        copied, at = self.like(total), 0
        for begin, count in zip(begin_R.tolist(), count_R.tolist(), strict=True):
            to, of = slice(at, at + count), slice(begin, begin + count)
            copied.label_N[to] = self.label_N[of]
            copied.dense_FN[:, to] = self.dense_FN[:, of]
            copied.ids_KN[:, to] = self.ids_KN[:, of]
            at += count
        return copied

    @classmethod
    def join(cls, parts: Sequence[SampleBlock]) -> SampleBlock:
        """Put the samples of all parts one after the other."""
        if len(parts) == 1:
            return parts[0]
        return cls(
            np.concatenate([part.label_N for part in parts]),
            np.concatenate([part.dense_FN for part in parts], axis=1),
            np.concatenate([part.ids_KN for part in parts], axis=1),
            {table: BagColumn.join([part.bags[table] for part in parts]) for table in parts[0].bags},
        )

    def like(self, samples: int) -> SampleBlock:
        """Return memory for as many samples, without bags."""
        return SampleBlock(
            np.empty(samples, self.label_N.dtype),
            np.empty((len(self.dense_FN), samples), self.dense_FN.dtype),
            np.empty((len(self.ids_KN), samples), self.ids_KN.dtype),
            {},
        )

    def part(self, begin: int, end: int) -> SampleBlock:
        """Return samples in place, without bags."""
        return SampleBlock(
            self.label_N[begin:end], self.dense_FN[:, begin:end], self.ids_KN[:, begin:end], {}
        )

    def samples(self) -> Samples:
        """Return samples as models take them. They share the block's memory; ``take`` copies."""
        dense_NF = np.ascontiguousarray(self.dense_FN.T)
        return Samples(torch.from_numpy(self.label_N), torch.from_numpy(dense_NF), self._lookups())

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
