"""Counts values that are replaced, by row group and column, not to find out by accident."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from laconic.data.dense import Dense
from laconic.data.odd_counts import OddCounts
from laconic.data.sample_decoder import flat, is_bag, whole

__all__ = ["OddValues"]


class OddValues:
    """Counts replaced values over any number of tables, each once however often it is read."""

    def __init__(self, dense: Sequence[Dense], categorical: Iterable[str]) -> None:
        self._dense, self._categorical = tuple(dense), tuple(categorical)
        self._counts: dict[int, tuple[OddCounts, ...]] = {}

    def add(self, group: int, table: Any) -> None:
        """Count the values of a table that has all columns; ``group``: which one it is."""
        if group not in self._counts:
            found = (OddCounts(name, *counts) for name, counts in self._found(table))
            self._counts[group] = tuple(column for column in found if column.any)

    def by_group(self) -> dict[int, tuple[OddCounts, ...]]:
        """Return the columns in which values were replaced, of tables that have any."""
        return {group: counts for group, counts in self._counts.items() if counts}

    def _found(self, table: Any) -> Iterable[tuple[str, tuple[int, int, int, int]]]:
        for feature in self._dense:
            yield feature.column, feature.odd(whole(table[feature.column]))
        for name in self._categorical:
            bags = int(table[name].null_count) if is_bag(table[name].type) else 0
            yield name, (int(flat(table[name]).null_count) + bags, 0, 0, 0)
