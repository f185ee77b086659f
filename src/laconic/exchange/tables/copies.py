"""Rows that are kept twice: hot ones on every rank, and warm ones of tables that are on disk.

**Hot** rows have a copy on every rank. The exchange knows *parts*: the tables as they are, and
after them one replicated part for each table that has hot rows. It holds only these, in the order
of their ids, and a lookup of a hot id goes to the copy::

    part          rows        place
    user          1,000,000   row-wise
    item             40,000   on rank 1
    user (hot)        1,200   replicated

**Warm** rows belong to a cold table but are in memory, because they are looked up often. Only their
owner knows: where a lookup arrives, ``Layout.rows_of`` names the copy in memory instead of the
place in the file. Messages are the same, and so are bytes, rounding and the order of sums.

In both cases the table keeps a place for the row, so that ids have one numbering, and a shard is
one matrix in the order of ids. What is in the place is old until ``Copies`` writes it back. Shape
legend: ``T`` tables, ``P`` parts, ``H`` hot rows of all tables, ``W`` warm rows, ``L`` lookups.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import NDArray

from laconic.errors import PlanError
from laconic.exchange.exchange_plan import ExchangePlan
from laconic.exchange.tables.keys import RowKey, RowSet, checked_ids
from laconic.exchange.tables.layout import Layout
from laconic.exchange.tables.table import Table

__all__ = ["Copies", "HotRows", "WarmRows", "hot_pairs", "warm_pairs"]

Ints = NDArray[np.int64]
Rows = NDArray[Any]
Pairs = Callable[[tuple[int, ...]], Iterator[tuple[Ints, Ints | slice]]]
"""``pairs(tables)`` yields rows of the matrix that are places, with those that are their copies."""
_CHUNK = 1 << 16  # rows of a shard; lists of all places would be a good part of what they save


class HotRows:
    """Which rows of which tables are hot; none, if it is given none."""

    def __init__(self, tables: Sequence[Table], ids: Mapping[str, Any] | None = None) -> None:
        """``ids``: of each table that has hot rows, ascending; ``PlanError`` for what cannot be."""
        self.tables = tuple(tables)
        self.ids = checked_ids("hot", tables, ids)
        """By the number of their table."""
        for t in self.ids:
            _check_hot(self.tables[t])
        self.parts = (*self.tables, *(_copied(self.tables[t], len(ids_H)) for t, ids_H in self.ids.items()))
        self.table_P = np.array([*range(len(self.tables)), *self.ids], np.int64)
        """Table of which each part is."""
        self._expanded: tuple[ExchangePlan, ExchangePlan] | None = None

    @property
    def digest(self) -> str:
        """Text that differs where hot rows do."""
        keys = [RowKey.pack(t, ids_H) for t, ids_H in self.ids.items()]
        key_H = np.concatenate([np.empty(0, np.int64), *keys])
        return blake2b(key_H.tobytes(), digest_size=8).hexdigest()

    def route(self, table_L: Ints, ids_L: Ints) -> tuple[Ints, Ints]:
        """Part that has each row, and the row's number in it."""
        if not self.ids:
            return table_L, ids_L
        start_T, most_T, rows, first_T, part_T = self._numbered
        hot_L, at_L = rows.find(start_T[table_L] + np.minimum(ids_L, most_T[table_L]))
        return np.where(hot_L, part_T[table_L], table_L), np.where(hot_L, at_L - first_T[table_L], ids_L)

    @cached_property
    def _numbered(self) -> tuple[Ints, Ints, RowSet, Ints, Ints]:
        """Ids of all tables in one numbering.

        Returns where each table's ids begin, how many it needs, and which are hot. Ids behind a
        table's last hot one share one number. Then follow the number of hot rows before each
        table's, and its part.
        """
        tables = range(len(self.tables))
        counts_T = np.array([len(self.ids.get(t, ())) for t in tables])
        most_T = np.array([int(self.ids[t][-1]) + 1 if t in self.ids else 0 for t in tables])
        start_T = np.cumsum(most_T + 1) - (most_T + 1)
        rows = RowSet(
            int((most_T + 1).sum()), np.concatenate([start_T[t] + ids_H for t, ids_H in self.ids.items()])
        )
        part_T = len(tables) + np.cumsum(counts_T > 0) - 1
        return start_T, most_T, rows, np.cumsum(counts_T) - counts_T, part_T

    def expand(self, plan: ExchangePlan) -> ExchangePlan:
        """Return the plan of all parts: hot rows travel as their table does.

        It is the same object for the same plan.
        """
        if not self.ids:
            return plan
        if self._expanded is None or self._expanded[0] is not plan:
            tables = tuple(plan.tables[t] for t in self.table_P)
            self._expanded = (plan, replace(plan, tables=tables))
        return self._expanded[1]


class WarmRows:
    """Which rows of which tables are warm; none, if it is given none."""

    def __init__(self, tables: Sequence[Table], ids: Mapping[str, Any] | None, hot: HotRows) -> None:
        """``ids`` are ascending, by table that has warm rows; ``PlanError`` for what cannot be."""
        self.ids = checked_ids("warm", tables, ids)
        """By the number of their table."""
        for t, ids_W in self.ids.items():
            where = f"warm rows of table {tables[t].name!r}"
            if not tables[t].cold:
                raise PlanError(f"{where}: all its rows are in memory; leave them out, or make it cold")
            both = np.intersect1d(ids_W, hot.ids.get(t, ids_W[:0]), assume_unique=True)
            if len(both):
                raise PlanError(
                    f"{where}: row {both[0]} is hot, so every rank has it in memory already; leave it out"
                )

    def in_file(self, layout: Layout) -> RowSet | None:
        """Which rows of a rank's file they are; None where it has none of them."""
        mine = [np.empty(0, np.int64)]
        for t, ids_W in self.ids.items():
            rank_W, local_W = layout.locate(np.full(len(ids_W), t), ids_W)
            mine.append(layout.place_T[t] + local_W[rank_W == layout.rank])
        rows_W = np.concatenate(mine)
        return RowSet(layout.file_rows, rows_W) if len(rows_W) else None

    @property
    def digest(self) -> str:
        """Text that differs where warm rows do."""
        found = blake2b(digest_size=8)
        for t, ids_W in self.ids.items():
            found.update(np.array([t, len(ids_W)]).tobytes() + ids_W.tobytes())
        return found.hexdigest()


class Copies:
    """A rank's copies and the places that their tables keep for them: rows of its matrix."""

    def __init__(self, pairs: Pairs, *matrices: Rows | None) -> None:
        """``matrices``: rows, and what belongs to them, such as optimizer state."""
        self._pairs = pairs
        self._matrices = [matrix for matrix in matrices if matrix is not None]

    def write_back(self, *tables: int) -> None:
        """Bring places up to date, for whoever reads shards of these tables."""
        for places, copies in self._pairs(tables):
            for matrix in self._matrices:
                matrix[places] = matrix[copies]

    def take(self, *tables: int) -> None:
        """Make copies what is in their places, after somebody wrote to shards of these tables."""
        for places, copies in self._pairs(tables):
            for matrix in self._matrices:
                matrix[copies] = matrix[places]


def hot_pairs(hot: HotRows, layout: Layout) -> Pairs:
    """Find copies of hot rows on the rank that owns them; the layout is that of all parts."""

    def pairs(tables: tuple[int, ...]) -> Iterator[tuple[Ints, Ints | slice]]:
        for part, (t, ids_H) in enumerate(hot.ids.items(), start=len(hot.tables)):
            if t in tables:
                rank_H, local_H = layout.locate(np.full(len(ids_H), t), ids_H)
                mine = np.flatnonzero(rank_H == layout.rank)
                yield layout.base_T[t] + local_H[mine], layout.base_T[part] + mine

    return pairs


def warm_pairs(layout: Layout) -> Pairs:
    """Find copies of warm rows."""

    def pairs(tables: tuple[int, ...]) -> Iterator[tuple[Ints, Ints | slice]]:
        for shard in (layout.shard(t) for t in tables if layout.cold_T[t]):
            for start in range(shard.start, shard.stop, _CHUNK):
                yield layout.warm_rows(start, min(start + _CHUNK, shard.stop))

    return pairs


def _copied(table: Table, rows: int) -> Table:
    return replace(
        table, name=f"{table.name} (hot)", rows=rows, sharding="replicated", owner=None, cold=False
    )


def _check_hot(table: Table) -> None:
    where = f"hot rows of table {table.name!r}"
    if table.sharding == "replicated":
        raise PlanError(f"{where}: the whole table is on every rank already; leave them out")
    if table.send == "pooled":
        raise PlanError(f"{where}: only a table that sends rows has hot ones, got send = 'pooled'")
