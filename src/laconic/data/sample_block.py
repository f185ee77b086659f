"""Decoded samples in memory, from which batches are gathered.

Shape legend: ``N`` samples held, ``F`` dense features, ``K`` categorical features with one id each.
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


@dataclass(frozen=True, slots=True)
class SampleBlock:
    """Decoded samples; ``bags`` has the number of their table as key."""

    label_N: NDArray[np.float32]
    dense_NF: NDArray[np.float32]
    ids_NK: NDArray[Any]
    """Ids as int32 if all tables allow it, else as int64. They are stored sample by sample, so that
    a sample takes one or two cache lines."""
    bags: dict[int, BagColumn]

    def take(self, index: Ints) -> SampleBlock:
        """Copy some samples, in that order."""
        return SampleBlock(
            self.label_N.take(index),
            self.dense_NF.take(index, axis=0),
            self.ids_NK.take(index, axis=0),
            {table: bags.take(index) for table, bags in self.bags.items()},
        )

    @classmethod
    def join(cls, parts: Sequence[SampleBlock]) -> SampleBlock:
        """Put the samples of all parts one after the other."""
        if len(parts) == 1:
            return parts[0]
        return cls(
            np.concatenate([part.label_N for part in parts]),
            np.concatenate([part.dense_NF for part in parts]),
            np.concatenate([part.ids_NK for part in parts]),
            {table: BagColumn.join([part.bags[table] for part in parts]) for table in parts[0].bags},
        )

    def samples(self) -> Samples:
        """Return samples as models take them. They share the block's memory; ``take`` copies."""
        return Samples(torch.from_numpy(self.label_N), torch.from_numpy(self.dense_NF), self._lookups())

    def _lookups(self) -> Lookups:
        if not self.bags:
            return Lookups.single(torch.from_numpy(self.ids_NK.T.astype(np.int64, order="C")))
        tables = self.ids_NK.shape[1] + len(self.bags)
        ids: list[Ints] = []
        lengths: list[Ints] = [np.zeros(1, dtype=np.int64)]
        one_hot = iter(self.ids_NK.T)
        ones = np.ones(self.label_N.size, dtype=np.int64)
        for table in range(tables):
            bags = self.bags.get(table)
            ids.append(next(one_hot).astype(np.int64) if bags is None else bags.ids)
            lengths.append(ones if bags is None else np.diff(bags.offsets))
        offsets = np.cumsum(np.concatenate(lengths))
        return Lookups(torch.from_numpy(np.concatenate(ids)), torch.from_numpy(offsets), tables)
