"""Which rows of a file are for training and which for evaluation, row group by row group.

random  Row ``i`` is for evaluation if ``uniform(mix64(i ^ key(seed))) < fraction``. Row groups do
        not matter.
time    The last ``fraction`` of rows is for evaluation, in the order of the file or of a column.
        All rows with the column's value at the cut are, so that no row of that moment is trained
        on.

Where a column tells the time, it is read once for the earliest and latest of each row group, and
again where the cut may be: in files that are nearly in order, in few of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from laconic.data.columns import RandomSplit, TimeSplit
from laconic.data.hashing import key64, mix64, uniform
from laconic.errors import FormatError

__all__ = ["Division"]

Ints = NDArray[np.int64]

_BINS = 1 << 16
_COLLECTED = 1 << 20
"""Values that are held and sorted, rather than counted in finer bins."""
_NEVER = np.iinfo(np.int64).max


class Tables(Protocol):
    """Row groups of files."""

    rows: list[int]

    def read(self, group: int, columns: Sequence[str]) -> Any:
        """Read some columns of a row group."""
        ...

    def where(self, group: int) -> str:
        """Name a row group."""
        ...


class Division:
    """Splits rows into train and eval; ``counts[split][group]`` has the number of each.

    Opening hashes every row, or reads the time column. It holds 32 bytes for each row group.
    """

    def __init__(self, settings: RandomSplit | TimeSplit, groups: Tables) -> None:
        rows = groups.rows
        self._settings = settings
        self._first = np.concatenate([[0], np.cumsum(rows, dtype=np.int64)])
        self._cut = int(self._first[-1]) - round(settings.fraction * int(self._first[-1]))
        self._column = settings.column if isinstance(settings, TimeSplit) else None
        self._low_G = self._high_G = np.empty(0, np.int64)
        if self._column is None:
            evaluated = [int(self._evaluates(group).sum()) for group in range(len(rows))]
        else:
            times = _Times(groups, self._column)
            self._low_G, self._high_G = times.low_G, times.high_G
            self._cut = times.kth(self._cut) if self._cut < self._first[-1] else _NEVER
            evaluated = times.from_cut(self._cut)
        self.counts = {
            "train": [count - taken for count, taken in zip(rows, evaluated, strict=True)],
            "eval": evaluated,
        }

    def columns_of(self, group: int) -> list[str]:
        """Return the columns that ``select`` needs of a row group."""
        if self._column is None or not self._low_G[group] < self._cut <= self._high_G[group]:
            return []
        return [self._column]

    def select(self, split: str, group: int, table: Any) -> Ints:
        """Rows of a row group that belong to a split, ascending."""
        if self._column is None:
            mask = self._evaluates(group)
        elif self.columns_of(group):
            mask = _times_of(table, self._column) >= self._cut
        else:
            rows = int(self._first[group + 1] - self._first[group])
            mask = np.full(rows, self._low_G[group] >= self._cut)
        return np.flatnonzero(mask if split == "eval" else ~mask)

    def _evaluates(self, group: int) -> NDArray[np.bool_]:
        row = np.arange(self._first[group], self._first[group + 1])
        if isinstance(self._settings, TimeSplit):
            return row >= self._cut
        if self._settings.fraction in (0, 1):
            return np.full(len(row), self._settings.fraction == 1)
        key = key64("split", self._settings.seed)
        return uniform(mix64(row.view(np.uint64) ^ key)) < self._settings.fraction


class _Times:
    """A column of times that is never held whole."""

    def __init__(self, groups: Tables, column: str) -> None:
        self._groups, self._column = groups, column
        ends = [(int(times.min()), int(times.max())) for times in map(self._read, range(len(groups.rows)))]
        self.low_G, self.high_G = np.array(ends, np.int64).reshape(-1, 2).T

    def kth(self, k: int) -> int:
        """Return the value that ``k`` others come before."""
        low, high = self._around(k)
        while True:
            below, inside = 0, 0
            width = max(-(-(high - low + 1) // _BINS), 1)
            counts = np.zeros(_BINS, np.int64)
            few: list[Ints] | None = []
            for group in range(len(self.low_G)):
                if self.high_G[group] < low:
                    below += self._groups.rows[group]
                elif self.low_G[group] <= high:
                    times = self._read(group)
                    below += int((times < low).sum())
                    times = times[(times >= low) & (times <= high)]
                    inside += len(times)
                    bins = (times.view(np.uint64) - np.int64(low).view(np.uint64)) // np.uint64(width)
                    counts += np.bincount(bins.astype(np.int64), minlength=_BINS)
                    few = None if few is None or inside > _COLLECTED else [*few, times]
            if few is not None:
                return int(np.partition(np.concatenate(few), k - below)[k - below])
            chosen = int(np.searchsorted(below + np.cumsum(counts), k, side="right"))
            low, high = low + chosen * width, min(low + (chosen + 1) * width - 1, high)
            if low == high:
                return low

    def from_cut(self, cut: int) -> list[int]:
        """Return how many rows of each group are at the cut or later."""
        found = []
        for group, rows in enumerate(self._groups.rows):
            if self.low_G[group] >= cut or self.high_G[group] < cut:
                found.append(rows if self.low_G[group] >= cut else 0)
            else:
                found.append(int((self._read(group) >= cut).sum()))
        return found

    def _around(self, k: int) -> tuple[int, int]:
        """Return what the value is between, by the ends of row groups alone."""
        rows_G = np.array(self._groups.rows, np.int64)
        by_high, by_low = np.argsort(self.high_G, kind="stable"), np.argsort(self.low_G, kind="stable")
        surely_up_to = np.cumsum(rows_G[by_high])
        high = self.high_G[by_high[np.searchsorted(surely_up_to, k, side="right")]]
        surely_before = np.cumsum(rows_G[by_low]) - rows_G[by_low]  # rows of groups that begin earlier
        low = self.low_G[by_low[np.searchsorted(surely_before, k, side="right") - 1]]
        return int(low), int(high)

    def _read(self, group: int) -> Ints:
        table = self._groups.read(group, [self._column])
        try:
            return _times_of(table, self._column)
        except FormatError as error:
            raise FormatError(f"{self._groups.where(group)}: {error}") from error


def _times_of(table: Any, column: str) -> Ints:
    values = table[column]
    if values.null_count:
        raise FormatError(f"{column!r}: expected a time in every row, got {values.null_count} nulls")
    try:
        times: Ints = values.combine_chunks().cast(pa.int64()).to_numpy(zero_copy_only=False)
    except pa.ArrowException:
        raise FormatError(f"{column!r}: expected integers or timestamps, got {values.type}") from None
    return times
