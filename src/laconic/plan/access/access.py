"""How often the rows of each table are looked up, as ``laconic profile`` found it.

Of every table a *head* of rows is known by name, each with its count. What is not in it is the
*tail*, known as runs: so many rows with so many lookups between them. Counts of head and tail add
up to the table's lookups; rows that are in neither were not looked up. ``access_file`` reads and
writes these values; ``access_load`` tells the planner.

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
_RANKED = 0.5  # correlation of ids with places in the order of frequency, from which on they count as ranked


@dataclass(frozen=True, slots=True)
class DistinctRows:
    """How many rows were looked up at all; all three are the same where that was counted."""

    __pydantic_config__ = _CHECKED
    rows: Count
    lower: Count
    upper: Count
    """Five standard errors away, or as far as rows and lookups allow."""


@dataclass(frozen=True, slots=True)
class Zipf:
    """Row k of the first ``ranks`` is looked up in proportion to ``k ** -exponent``."""

    __pydantic_config__ = _CHECKED
    exponent: Positive
    ks: Share
    """Kolmogorov-Smirnov distance: largest difference between the shares of lookups that the k most
    frequent of these rows have, and should have."""
    ranks: Some


@dataclass(frozen=True, slots=True)
class Drift:
    """How far lookups in the last third of the samples differ from those in the first.

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
    """By falling count, then by id."""

    counts_H: Ints
    missed_H: Ints
    """At most so many lookups of this row are counted in the tail instead; 0: the count is
    exact."""

    tail_rows_R: Ints
    tail_lookups_R: Ints
    """Of the tail's runs, by falling lookups of a row; at least one lookup a row."""

    sampled: int
    """Rows of the tail from whose exact counts its runs are estimated, drawn at random: the number
    of rows in the tail has a relative standard error of about ``sampled ** -0.5``, so has a run by
    its share of them. 0: no tail."""

    distinct: DistinctRows
    bags: tuple[tuple[int, int], ...]
    """Lengths of bags, rising, and how many samples have them; from 64 on, lengths of one range
    share an entry, that of its shortest."""

    zipf: Zipf | None
    """None: too few rows are looked up often enough to fit anything."""

    drift: Drift | None
    """None: too few lookups to tell drift from chance."""

    @property
    def mean_bag(self) -> float:
        """Lookups of a sample, on average."""
        return self.lookups / self.samples if self.samples else 0.0

    @property
    def exact(self) -> bool:
        """Whether every row that was looked up is in the head, with its exact count."""
        return not self.tail_rows_R.size and not self.missed_H.any()

    def probabilities(self) -> tuple[Ints, Floats]:
        """Make runs ``(count_G, probability_G)``: rows, and how likely a lookup hits a given one.

        By falling probability; rows that were never looked up are the last run, of probability 0.
        Counts add up to ``rows``, and their products with probabilities to 1 (to 0 where there were
        no lookups).
        """
        count_G, each_G = self.runs()
        return count_G, each_G / max(self.lookups, 1)

    def runs(self) -> tuple[Ints, Floats]:
        """Rows of each run, and lookups of each row in it, which fall; the last may have none."""
        counts, sizes = np.unique(self.counts_H, return_counts=True)
        unseen = self.rows - self.ids_H.size - int(self.tail_rows_R.sum())
        count_G = np.concatenate([sizes, self.tail_rows_R, [unseen]]).astype(np.int64)
        each_G = np.concatenate([counts, self.tail_lookups_R / np.maximum(self.tail_rows_R, 1), [0.0]])
        order = np.argsort(-each_G, kind="stable")
        order = order[count_G[order] > 0]
        return count_G[order], each_G[order]

    def share_of_top(self, rows: Floats) -> Floats:
        """Share of lookups that go to the most frequent ``rows`` rows, for every such number."""
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
    """What was profiled, for people."""

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
    """Make a load of counted lookups; rows of the head, whose ids are known, can be hot or warm."""
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
    """Ids of the most frequent rows, ascending."""
    return np.sort(table.ids_H[:count]).astype(np.int64)


def warm_ids(table: TableAccess, choice: Place, ranks: int) -> Ints:
    """Ids of the most frequent rows behind the hot ones, ascending.

    A dealt table has as many as planned on each rank. They may be fewer than planned, where one
    rank has fewer of the rows whose ids are known.
    """
    ids_H = table.ids_H[choice.hot :].astype(np.int64)
    if choice.sharding != "row":
        return np.sort(ids_H[: choice.warm])
    each = choice.warm // ranks
    return np.sort(np.concatenate([ids_H[ids_H % ranks == rank][:each] for rank in range(ranks)]))


def _order(table: TableAccess) -> IdOrder:
    """Whether frequent rows have small ids; ``ids_H`` is in the order of frequency."""
    ids_H = table.ids_H
    if len(ids_H) < 2:
        return "mixed"
    place_H = np.argsort(np.argsort(ids_H))
    correlation = np.corrcoef(place_H, np.arange(len(ids_H)))[0, 1]
    return "ranked" if correlation > _RANKED else "mixed"
