"""Which rows of a file are for training and which for evaluation, row group by row group.

random  Row ``i`` is for evaluation if ``uniform(mix64(i ^ key(seed))) < fraction``. Row groups do
        not matter.
time    The last ``fraction`` of rows is for evaluation, in the order of the file or of a column.
        All rows with the column's value at the cut are, so that no row of that moment is trained
        on.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from laconic.data.columns import RandomSplit, TimeSplit
from laconic.data.hashing import key64, mix64, uniform
from laconic.errors import FormatError

__all__ = ["Division"]


class Division:
    """Splits rows into train and eval; ``counts[split][group]`` has the number of each.

    Opening hashes every row (0.01 s per million), or scans the time column once and holds it, at 8
    bytes a row, to find the cut.
    """

    def __init__(self, settings: RandomSplit | TimeSplit, rows: list[int], times: Iterable[Any] = ()) -> None:
        """Take the rows of each row group, and for a time column the tables that have it."""
        self._settings = settings
        self._first = np.concatenate([[0], np.cumsum(rows, dtype=np.int64)])
        self._cut = int(self._first[-1]) - round(settings.fraction * int(self._first[-1]))
        self.column = settings.column if isinstance(settings, TimeSplit) else None
        held = [_times(table, str(self.column)) for table in times] if self.column else []
        if held and self._cut < self._first[-1]:
            self._cut = int(np.partition(np.concatenate(held), self._cut)[self._cut])
        elif held:
            self._cut = np.iinfo(np.int64).max
        masks = (self._evaluates(group, held[group] if held else None) for group in range(len(rows)))
        evaluated = [int(mask.sum()) for mask in masks]
        self.counts = {
            "train": [count - taken for count, taken in zip(rows, evaluated, strict=True)],
            "eval": evaluated,
        }

    def select(self, split: str, group: int, table: Any) -> NDArray[np.int64]:
        """Rows of a row group that belong to a split, ascending."""
        times = _times(table, self.column) if self.column else None
        mask = self._evaluates(group, times)
        return np.flatnonzero(mask if split == "eval" else ~mask)

    def _evaluates(self, group: int, times: NDArray[np.int64] | None) -> NDArray[np.bool_]:
        if times is not None:
            return times >= self._cut
        row = np.arange(self._first[group], self._first[group + 1])
        if isinstance(self._settings, TimeSplit):
            return row >= self._cut
        key = key64("split", self._settings.seed)
        return uniform(mix64(row.view(np.uint64) ^ key)) < self._settings.fraction


def _times(table: Any, column: str) -> NDArray[np.int64]:
    values = table[column]
    if values.null_count:
        raise FormatError(f"{column!r}: expected a time in every row, got {values.null_count} nulls")
    try:
        times: NDArray[np.int64] = values.combine_chunks().cast(pa.int64()).to_numpy(zero_copy_only=False)
    except pa.ArrowException:
        raise FormatError(f"{column!r}: expected integers or timestamps, got {values.type}") from None
    return times
