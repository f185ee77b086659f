"""Counts values that are replaced, by column, so that nobody finds out by accident."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from laconic.data.dense import Dense
from laconic.data.odd_counts import OddCounts
from laconic.data.sample_decoder import flat, is_bag

__all__ = ["OddValues"]


class OddValues:
    """Counts replaced values over any number of tables."""

    def __init__(self, dense: Sequence[Dense], categorical: Iterable[str]) -> None:
        self._dense, self._categorical = tuple(dense), tuple(categorical)
        self._counts: dict[str, NDArray[np.int64]] = {}

    def add(self, table: Any) -> None:
        """Count the values of a table that has all columns."""
        for feature in self._dense:
            self._count(feature.column, feature.odd(table[feature.column].combine_chunks()))
        for name in self._categorical:
            bags = int(table[name].null_count) if is_bag(table[name].type) else 0
            self._count(name, (int(flat(table[name]).null_count) + bags, 0, 0, 0))

    def columns(self) -> tuple[OddCounts, ...]:
        """Return the columns in which values were replaced."""
        return tuple(
            OddCounts(name, *map(int, counts)) for name, counts in self._counts.items() if counts.any()
        )

    def _count(self, name: str, counts: Sequence[int]) -> None:
        self._counts[name] = self._counts.get(name, np.zeros(4, dtype=np.int64)) + np.array(counts)
