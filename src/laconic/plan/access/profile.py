"""Access statistics in one pass over the lookups of a data set.

Memory is bounded, whatever is looked up. ``capacity`` ids are counted in all tables together, twice
at most, at 40 bytes each, and as many again wait to be counted. Tables share this capacity: a table
with fewer rows than its share leaves the rest to the others. ``table_counter`` has the method.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from laconic.errors import ConfigError
from laconic.lookups import Lookups
from laconic.plan.access.access import Access, DistinctRows, Drift, TableAccess
from laconic.plan.access.estimates import coarse, drift_between, fit_zipf, tail_runs, tail_size
from laconic.plan.access.table_counter import TableCounter, Tallies, ids_at

__all__ = ["CAPACITY", "Profiler", "capacities"]

CAPACITY = 1 << 21
_LEAST_CAPACITY = 1024
_SURE = 16  # a row is in the head if it cannot have missed more than a 16th of its count


class Profiler:
    """Takes the lookups of all samples, in their order, in blocks of any size."""

    def __init__(
        self, tables: Sequence[tuple[str, int]], samples: int, *, source: str, capacity: int = CAPACITY
    ) -> None:
        """Expect ``samples`` samples; ``tables`` has name and rows of each table."""
        shares = capacities([rows for _, rows in tables], capacity)
        self._counters = [
            TableCounter(name, rows, share) for (name, rows), share in zip(tables, shares, strict=True)
        ]
        self._source = source
        self._samples = samples
        self._seen = 0
        self._lengths: list[dict[int, int]] = [{} for _ in tables]

    def add(self, lookups: Lookups) -> None:
        """Take the next samples."""
        ids_L, offsets = lookups.ids_L.numpy(), lookups.offsets.numpy()
        count = lookups.samples
        if self._seen + count > self._samples:
            raise ConfigError(
                f"profile: expected {self._samples} samples, got {self._seen + count}; did the data change?"
            )
        begin = 0
        while begin < count:
            at = self._seen + begin
            third, until = self._third(at)
            end = min(count, begin + until - at)
            for t, counter in enumerate(self._counters):
                low, high = offsets[t * count + begin], offsets[t * count + end]
                counter.add(ids_L[low:high], third)
                if at + end - begin == until:
                    counter.flush(third)
            begin = end
        for t, lengths in enumerate(self._lengths):
            found = np.unique(coarse(np.diff(offsets[t * count : (t + 1) * count + 1])), return_counts=True)
            for length, samples in zip(*(array.tolist() for array in found), strict=True):
                lengths[length] = lengths.get(length, 0) + samples
        self._seen += count

    def _third(self, at: int) -> tuple[str | None, int]:
        """Return which third a sample is in, and where that ends."""
        third = self._samples // 3
        if at < third:
            return "first", third
        return (None, self._samples - third) if at < self._samples - third else ("last", self._samples)

    def finish(self) -> Access:
        """Return the statistics, after all samples."""
        if self._seen != self._samples:
            raise ConfigError(
                f"profile: expected {self._samples} samples, got {self._seen}; did the data change?"
            )
        tables = tuple(
            _table(counter, lengths, self._samples)
            for counter, lengths in zip(self._counters, self._lengths, strict=True)
        )
        return Access(self._source, self._samples, tables)


def capacities(rows: Sequence[int], total: int) -> list[int]:
    """Divide the capacity for ids between tables: at most their rows, else equal shares."""
    shares = [0] * len(rows)
    left = total
    by_size = sorted(range(len(rows)), key=rows.__getitem__)
    for place, t in enumerate(by_size):
        shares[t] = min(rows[t], max(left // (len(rows) - place), _LEAST_CAPACITY))
        left = max(left - shares[t], 0)
    return shares


def _table(counter: TableCounter, lengths: dict[int, int], samples: int) -> TableAccess:
    head = counter.sample
    tail = Tallies()
    weight = 1.0
    if counter.held is not None:
        head = counter.held.kept(counter.held.missed_N * _SURE <= counter.held.count_N)
        # given the last one's place, the others are drawn with its chance
        sure = counter.sample.kept(slice(-1))
        weight = 2.0**64 / float(counter.sample.place_N[-1])
        tail = sure.kept(~head.among(sure.place_N))
    ids_H = ids_at(head.place_N)
    order = np.lexsort((ids_H, -head.count_N))
    counts_H = head.count_N[order]
    tail_lookups = counter.lookups - int(counts_H.sum())
    distinct = DistinctRows(len(head), len(head), len(head))
    if counter.held is not None:
        distinct = tail_size(len(tail), 1 / weight, len(head), counter.rows, tail_lookups)
    rows_R, lookups_R = tail_runs(tail.count_N, distinct.rows - len(head), tail_lookups)
    table = TableAccess(
        name=counter.name,
        rows=counter.rows,
        lookups=counter.lookups,
        samples=samples,
        ids_H=ids_H[order],
        counts_H=counts_H,
        missed_H=head.missed_N[order],
        tail_rows_R=rows_R,
        tail_lookups_R=lookups_R,
        sampled=len(tail),
        distinct=distinct,
        bags=tuple(sorted(lengths.items())),
        zipf=None,
        drift=_drift(counter, head, tail, weight),
    )
    return replace(table, zipf=fit_zipf(*table.runs()))


def _drift(counter: TableCounter, head: Tallies, tail: Tallies, weight: float) -> Drift | None:
    return drift_between(
        np.concatenate([head.first_N, tail.first_N]),
        np.concatenate([head.last_N, tail.last_N]),
        np.concatenate([np.ones(len(head)), np.full(len(tail), weight)]),
        (counter.first_lookups, counter.last_lookups),
    )
