"""How far batches in order of time are from independent lookups: ``python -m tests.oracle.by_time
DIR``.

Training shuffles, so its batches are nearly independent; a stream is not. One number for each table
describes that, its correlation (``laconic.cost.needed_rows``); whether it serves all batch sizes is
measured too. ``DIR`` has Parquet files with columns ``time`` and ``c_*``. Frequencies are those of
the whole file. Shape legend: ``T`` tables, ``R`` samples.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from laconic.cost.frequencies import Frequencies
from laconic.cost.needed_rows import distinct_rows
from laconic.errors import ConfigError

__all__ = ["MEASURED_AT", "ByTime", "correlation_of", "frequencies_of", "measure_by_time"]

MEASURED_AT = 2048
"""Batch that correlations are measured at."""
_BATCHES = (256, 1024, 2048, 8192, 32768)
_MOST_BATCHES = 100
_BISECTIONS = 100


@dataclass(frozen=True, slots=True)
class ByTime:
    """All tables of one data set at one batch size."""

    data: str
    batch: int
    least: float
    most: float
    """Correlations of tables, measured at this size."""
    independent: float
    """Error of the predicted distinct rows of all tables, with correlations of 1."""
    correlated: float
    """The same with those that were measured at another size."""


def measure_by_time(data: Path) -> Iterator[ByTime]:
    """Yield what each file of a folder shows; it needs columns ``time`` and ``c_*``."""
    import pyarrow.parquet as pq

    for file in sorted(data.glob("*.parquet")):
        names = [name for name in pq.read_schema(file).names if name.startswith("c_") or name == "time"]
        columns = pq.read_table(file, columns=names).to_pydict()
        order = np.argsort(np.array(columns.pop("time")), kind="stable")
        ids_TR = [np.array(ids, np.int64)[order] for ids in columns.values()]
        frequencies_T = [frequencies_of(np.bincount(ids)) for ids in ids_TR]
        c_T = _correlations(frequencies_T, MEASURED_AT, _distinct(ids_TR, MEASURED_AT))
        for batch in _BATCHES:
            distinct_T = _distinct(ids_TR, batch)
            here_T = _correlations(frequencies_T, batch, distinct_T)
            independent, correlated = (
                sum(distinct_rows(f, batch, float(c)) for f, c in zip(frequencies_T, cs, strict=True))
                for cs in (np.ones_like(c_T), c_T)
            )
            total = float(distinct_T.sum())
            yield ByTime(
                file.stem,
                batch,
                float(here_T.min()),
                float(here_T.max()),
                independent / total - 1,
                correlated / total - 1,
            )


def frequencies_of(lookups_R: Any, lookups_per_sample: float = 1.0) -> Frequencies:
    """Take how often each row was seen; rows never seen have probability 0."""
    lookups = np.asarray(lookups_R)
    if lookups.ndim != 1 or lookups.dtype.kind not in "iu" or (lookups.size and lookups.min() < 0):
        raise ConfigError(
            f"frequencies: expected a list of counts >= 0, got {lookups.dtype} of shape {lookups.shape}"
        )
    seen, rows = np.unique(lookups, return_counts=True)
    return Frequencies(rows[::-1], seen[::-1] / max(int(lookups.sum()), 1), lookups_per_sample)


def correlation_of(frequencies: Frequencies, lookups: float, distinct: float) -> float:
    """Find the correlation at which so many lookups have so many distinct rows, as was measured.

    1 where independent lookups do as well, as in a table so small that any batch has all of its
    rows. Between 1e-3 and 1e6: a batch with a row that these frequencies exclude fits none.
    """
    if not 0 <= distinct <= lookups:
        raise ConfigError(
            f"distinct: expected at most as many distinct rows as lookups, {lookups!r}, got {distinct!r}"
        )
    if math.isclose(distinct_rows(frequencies, lookups), distinct, rel_tol=1e-6):
        return 1.0
    low, high = math.log(1e-3), math.log(1e6)
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        if distinct_rows(frequencies, lookups, math.exp(middle)) > distinct:
            low = middle
        else:
            high = middle
    return math.exp(high)


def _distinct(ids_TR: Sequence[NDArray[np.int64]], batch: int) -> NDArray[np.float64]:
    """Mean distinct ids of batches that are spread over the file."""
    starts = np.arange(0, len(ids_TR[0]) - batch, batch)
    starts = starts[:: max(len(starts) // _MOST_BATCHES, 1)]
    return np.array([np.mean([len(np.unique(ids[s : s + batch])) for s in starts]) for ids in ids_TR])


def _correlations(
    frequencies_T: Sequence[Frequencies], batch: int, distinct_T: NDArray[np.float64]
) -> NDArray[np.float64]:
    return np.array(
        [correlation_of(f, batch, float(u)) for f, u in zip(frequencies_T, distinct_T, strict=True)]
    )


if __name__ == "__main__":
    for found in measure_by_time(Path(sys.argv[1])):
        errors = f"c = 1 {found.independent:+.1%}, c of batch {MEASURED_AT} {found.correlated:+.1%}"
        print(f"{found.data} {found.batch}: c {found.least:.2f} .. {found.most:.2f}, {errors}")
