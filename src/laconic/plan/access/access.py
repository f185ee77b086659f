"""Access statistics: how often the rows of each table are looked up.

``laconic profile`` finds them. Each table has a *head*, rows that are known by id with their
counts. The other rows are the *tail*. It is known as runs, each with a number of rows and the
number of their lookups. Counts of head and tail add up to the table's lookups. Rows in neither were
not looked up. ``access_file`` reads and writes these values; ``access_load`` hands them to the
planner.

Shape legend: ``H`` rows of the head, ``R`` runs of the tail, ``G`` runs of equal probability.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from pydantic import ConfigDict, Field

from laconic.cost.frequencies import Frequencies
from laconic.cost.id_bytes import IdOrder
from laconic.cost.load import Place
from laconic.cost.workload import RowCoding, TableLoad
from laconic.errors import ConfigError

__all__ = [
    "Access",
    "DistinctRows",
    "Drift",
    "TableAccess",
    "Zipf",
    "access_load",
    "hottest_ids",
    "warm_ids",
]

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Count = Annotated[int, Field(ge=0, le=2**63 - 1)]
Some = Annotated[int, Field(ge=1, le=2**63 - 1)]
Share = Annotated[float, Field(ge=0, le=1)]
Positive = Annotated[float, Field(ge=0)]
_CHECKED = ConfigDict(extra="forbid", allow_inf_nan=False)  # where a file says so
_RANKED = 0.5  # correlation of ids and ranks by frequency from which on ids count as ranked


@dataclass(frozen=True, slots=True)
class DistinctRows:
    """Number of rows that were looked up; if it was counted, all three numbers are equal."""

    __pydantic_config__ = _CHECKED
    rows: Count
    lower: Count
    upper: Count
    """Bounds five standard errors away, or as far as rows and lookups allow."""


@dataclass(frozen=True, slots=True)
class Zipf:
    """Zipf's law: row k of the first ``ranks`` is looked up in proportion to ``k ** -exponent``."""

    __pydantic_config__ = _CHECKED
    exponent: Positive
    ks: Share
    """Kolmogorov-Smirnov distance: largest difference between the shares of lookups that the k most
    frequent of these rows have, and should have."""
    ranks: Some


@dataclass(frozen=True, slots=True)
class Drift:
    """Difference between lookups in the first and in the last third of the samples.

    The total variation distance less what chance alone makes of it: 0 for samples in random order,
    1 where no row of the first third is seen in the last.
    """

    __pydantic_config__ = _CHECKED
    distance: Share
    noise: Positive
    """Standard deviation of ``distance`` without drift."""


@dataclass(frozen=True, slots=True, eq=False)
class TableAccess:
    """Lookups of one table."""

    name: str
    rows: int
    lookups: int
    samples: int

    ids_H: Ints
    """Ids of the head, by falling count, then by id."""

    counts_H: Ints
    missed_H: Ints
    """Largest number of lookups of this row that are counted in the tail instead. With 0 the count
    is exact."""

    tail_rows_R: Ints
    tail_lookups_R: Ints
    """Lookups of the tail's runs, by falling lookups of a row; each row has at least one."""

    sampled: int
    """Number of rows of the tail, drawn at random, whose exact counts its runs are estimated from.
    0 means that there is no tail. The number of rows in the tail has a relative standard error of
    about ``sampled ** -0.5``, and a run has that of its share of them."""

    distinct: DistinctRows
    bags: tuple[tuple[int, int], ...]
    """Lengths of bags, rising, and the number of samples that have them. From 64 on, lengths of one
    range share an entry, that of the shortest."""

    zipf: Zipf | None
    """Fitted law; None if too few rows are looked up often enough."""

    drift: Drift | None
    """Measured drift; None if there are too few lookups to tell it from chance."""

    @property
    def mean_bag(self) -> float:
        """Mean number of lookups of a sample."""
        return self.lookups / self.samples if self.samples else 0.0

    @property
    def exact(self) -> bool:
        """Whether every row that was looked up is in the head, with its exact count."""
        return not self.tail_rows_R.size and not self.missed_H.any()

    def probabilities(self) -> tuple[Ints, Floats]:
        """Return runs ``(count_G, probability_G)``: rows, and the probability of each of them.

        Probabilities fall. Rows that were never looked up are the last run, with probability 0.
        Counts add up to ``rows``, and their products with probabilities to 1 (to 0 without any
        lookups).
        """
        count_G, each_G = self.runs()
        return count_G, each_G / max(self.lookups, 1)

    def runs(self) -> tuple[Ints, Floats]:
        """Return rows of each run, and falling lookups of each row; the last may have none."""
        counts, sizes = np.unique(self.counts_H, return_counts=True)
        unseen = self.rows - self.ids_H.size - int(self.tail_rows_R.sum())
        count_G = np.concatenate([sizes, self.tail_rows_R, [unseen]]).astype(np.int64)
        each_G = np.concatenate([counts, self.tail_lookups_R / np.maximum(self.tail_rows_R, 1), [0.0]])
        order = np.argsort(-each_G, kind="stable")
        order = order[count_G[order] > 0]
        return count_G[order], each_G[order]

    def share_of_top(self, rows: Floats) -> Floats:
        """Return the share of lookups of the ``rows`` most frequent rows, for every such number."""
        count_G, probability_G = self.probabilities()
        ranks = np.concatenate([[0], np.cumsum(count_G)])
        shares = np.concatenate([[0.0], np.cumsum(count_G * probability_G)])
        top: Floats = np.interp(rows, ranks, shares)
        return top

    @property
    def top_share(self) -> float:
        """Share of lookups that go to the most frequent 1 % of all rows, one row at least."""
        return float(self.share_of_top(np.array([max(1, self.rows // 100)]))[0])


@dataclass(frozen=True, slots=True, eq=False)
class Access:
    """Lookups of all tables of a data set."""

    source: str
    """Name of the profiled data, for people."""

    samples: int
    tables: tuple[TableAccess, ...]

    def table(self, name: str) -> TableAccess:
        """Find a table, or raise ConfigError."""
        for table in self.tables:
            if table.name == name:
                return table
        known = ", ".join(table.name for table in self.tables)
        raise ConfigError(f"access: no table {name!r} (known: {known})")


def access_load(table: TableAccess, forward: RowCoding, backward: RowCoding) -> TableLoad:
    """Turn counted lookups into a load; rows of the head can be hot or warm."""
    count_G, probability_G = table.probabilities()
    frequencies = Frequencies.from_runs(count_G, probability_G, table.mean_bag or 1.0)
    return TableLoad(
        name=table.name,
        frequencies=frequencies,
        known=len(table.ids_H),
        id_order=_order(table),
        forward=forward,
        backward=backward,
    )


def hottest_ids(table: TableAccess, count: int) -> Ints:
    """Return ids of the most frequent rows, ascending."""
    return np.sort(table.ids_H[:count]).astype(np.int64)


def warm_ids(table: TableAccess, place: Place, ranks: int) -> Ints:
    """Return ids of the most frequent rows behind the hot ones, ascending.

    In a row-wise table each rank has as many as planned, or fewer if it has fewer of the rows whose
    ids are known.
    """
    ids_H = table.ids_H[place.hot :].astype(np.int64)
    if place.sharding != "row":
        return np.sort(ids_H[: place.warm])
    each = place.warm // ranks
    return np.sort(np.concatenate([ids_H[ids_H % ranks == rank][:each] for rank in range(ranks)]))


def _order(table: TableAccess) -> IdOrder:
    """Return whether frequent rows have small ids; ``ids_H`` is in the order of frequency."""
    ids_H = table.ids_H
    if len(ids_H) < 2:
        return "mixed"
    place_H = np.argsort(np.argsort(ids_H))
    correlation = np.corrcoef(place_H, np.arange(len(ids_H)))[0, 1]
    return "ranked" if correlation > _RANKED else "mixed"
