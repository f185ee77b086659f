"""Where every row of every table is: arithmetic on arrays, no dictionaries of rows.

A rank keeps its shards of all tables back to back in one matrix, with cold tables at the end::

    rows   | tables in memory | copies of warm rows | cold tables, with places for their warm rows |
    kept   in memory, up to a multiple of ALIGNMENT | in a file

Shape legend: ``T`` tables, ``L`` lookups, ``C`` ids of which a rank has the rows, ``W`` warm rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from laconic.cost.link import owners_sum
from laconic.errors import ConfigError, PlanError
from laconic.exchange.tables.keys import RowSet
from laconic.exchange.tables.memory import ALIGNMENT
from laconic.exchange.tables.table import Table

__all__ = ["Layout"]

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Layout:
    """Tables spread over ranks, as one of them sees it."""

    tables: tuple[Table, ...]
    ranks: int
    rank: int
    alone: int = 0
    """Number of tables at the end of the list whose copies each rank trains by itself between two
    synchronizations."""
    warm: RowSet | None = None
    """Rows of this rank's file that are warm (``WarmRows`` finds them)."""

    def __post_init__(self) -> None:
        if not self.tables:
            raise ConfigError("layout: expected at least one table, got none")
        names = [table.name for table in self.tables]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ConfigError(f"layout: table names must differ, got {twice[0]!r} twice")
        for table in self.tables:
            if table.owner is not None and not 0 <= table.owner < self.ranks:
                raise PlanError(
                    f"table {table.name!r}: owner {table.owner} is not one of {self.ranks} ranks; "
                    "leave it out, or start more ranks"
                )

    @cached_property
    def rows_T(self) -> Ints:
        """Rows of every table."""
        return np.array([table.rows for table in self.tables])

    @cached_property
    def split_T(self) -> NDArray[np.bool_]:
        """Which tables are split by rows."""
        return np.array([table.sharding == "row" for table in self.tables])

    @cached_property
    def replicated_T(self) -> NDArray[np.bool_]:
        """Which tables are everywhere, and kept equal by everybody's gradients."""
        shared = len(self.tables) - self.alone
        return np.array(
            [table.sharding == "replicated" and t < shared for t, table in enumerate(self.tables)]
        )

    @cached_property
    def summed_T(self) -> NDArray[np.bool_]:
        """Replicated tables whose gradients owners sum (``owner_sums``): not on two ranks."""
        return self.replicated_T & owners_sum(self.ranks)

    @cached_property
    def pooled_T(self) -> NDArray[np.bool_]:
        """Which tables are pooled by their owner."""
        return np.array([table.send == "pooled" for table in self.tables])

    @cached_property
    def first_T(self) -> Ints:
        """Rank that has row 0; of replicated tables this rank."""
        first = np.zeros(len(self.tables), np.int64)
        load = np.zeros(self.ranks)
        for table in self.tables:
            if table.owner is not None:
                load[table.owner] += 1
        whole = [
            t for t, table in enumerate(self.tables) if table.sharding == "table" and table.owner is None
        ]
        # A lookup costs the same in a small and in a large table. Rows only break ties, for memory.
        memory = np.zeros(self.ranks)
        for t in sorted(whole, key=lambda t: (-self.tables[t].rows, t)):
            rank = min(range(self.ranks), key=lambda r: (load[r], memory[r], r))
            first[t] = rank
            load[rank] += 1
            memory[rank] += self.tables[t].rows
        for t, table in enumerate(self.tables):
            if table.owner is not None:
                first[t] = table.owner
            elif table.sharding == "row":
                first[t] = t % self.ranks
            elif table.sharding == "replicated":
                first[t] = self.rank
        return first

    def shard_rows(self, rank: int) -> Ints:
        """Rows of every table that a rank keeps."""
        behind = (rank - self.first_T) % self.ranks
        by_row = (self.rows_T - behind + self.ranks - 1) // self.ranks
        whole = np.where(self.first_T == rank, self.rows_T, 0)
        kept = np.where(self.split_T, np.maximum(by_row, 0), whole)
        return np.where(self.replicated_T, self.rows_T, kept)

    @cached_property
    def base_T(self) -> Ints:
        """Where the shard of every table begins in this rank's matrix, and where the last ends."""
        shard_T = self.shard_rows(self.rank)
        in_memory_T = np.where(self.cold_T, 0, shard_T)
        base_T = np.where(self.cold_T, self.memory_rows + self.place_T, np.cumsum(in_memory_T) - in_memory_T)
        return np.append(base_T, self.memory_rows + self.file_rows)

    @cached_property
    def cold_T(self) -> NDArray[np.bool_]:
        """Which tables are in a file."""
        return np.array([table.cold for table in self.tables])

    @cached_property
    def place_T(self) -> Ints:
        """Where the shard of every cold table begins in the file, in rows."""
        in_file_T = np.where(self.cold_T, self.shard_rows(self.rank), 0)
        starts_T: Ints = np.cumsum(in_file_T) - in_file_T
        return starts_T

    @cached_property
    def file_rows(self) -> int:
        """Rows of this rank's matrix that are in a file, the last ones."""
        return int(self.shard_rows(self.rank)[self.cold_T].sum())

    @cached_property
    def memory_rows(self) -> int:
        """Rows before them."""
        rows = self._warm_base + (0 if self.warm is None else self.warm.count)
        return -(-rows // ALIGNMENT) * ALIGNMENT if self.file_rows else rows

    @cached_property
    def _warm_base(self) -> int:
        """Where copies of warm rows begin: behind tables that are in memory as a whole."""
        return int(self.shard_rows(self.rank)[~self.cold_T].sum())

    def rows_of(self, table_C: Ints, local_C: Ints) -> Ints:
        """Rows of this rank's matrix that have these of its shards: of warm ones their copies."""
        rows_C: Ints = self.base_T[table_C] + local_C
        if self.warm is not None:
            at = np.flatnonzero(rows_C >= self.memory_rows)
            is_warm, copy = self.warm.find(rows_C[at] - self.memory_rows)
            rows_C[at[is_warm]] = self._warm_base + copy[is_warm]
        return rows_C

    def warm_rows(self, start: int, stop: int) -> tuple[Ints, slice]:
        """Which of these rows of the matrix's file are warm, and where their copies are."""
        if self.warm is None:
            return np.empty(0, np.int64), slice(0)
        file = self.memory_rows
        places_W = self.warm.members(start - file, stop - file) + file
        first = self._warm_base + int(self.warm.find(places_W[:1] - file)[1].sum())
        return places_W, slice(first, first + len(places_W))

    def is_replica(self, rows: Ints) -> NDArray[np.bool_]:
        """Which rows of this rank's matrix every rank has."""
        found = np.zeros(len(rows), np.bool_)
        for t in np.flatnonzero(self.replicated_T):
            shard = self.shard(int(t))
            parts = [shard]
            if self.cold_T[t] and self.warm is not None:
                parts.append(self.warm_rows(shard.start, shard.stop)[1])
            for part in parts:
                found |= (rows >= part.start) & (rows < part.stop)
        return found

    def shard(self, t: int) -> slice:
        """Rows of this rank's matrix that are its shard of a table."""
        start = int(self.base_T[t])
        return slice(start, start + int(self.shard_rows(self.rank)[t]))

    @property
    def local_rows(self) -> int:
        """Rows of this rank's matrix."""
        return int(self.base_T[-1])

    def holds(self, rank: int) -> NDArray[np.bool_]:
        """Which tables have a shard on a rank that other ranks ask for."""
        held: NDArray[np.bool_] = (self.split_T | (self.first_T == rank)) & ~self.replicated_T
        return held

    def locate(self, table_L: Ints, ids_L: Ints) -> tuple[Ints, Ints]:
        """Rank that has each row, and the row's number in its shard."""
        first_L = self.first_T[table_L]
        if not self.split_T.any() or self.ranks == 1:
            return first_L, ids_L
        split_L = self.split_T[table_L]
        rank_L = np.where(split_L, (first_L + ids_L) % self.ranks, first_L)
        return rank_L, np.where(split_L, ids_L // self.ranks, ids_L)

    def sums_of(self, table_L: Ints, ids_L: Ints) -> tuple[Ints, Ints]:
        """Rank that sums gradients of each row of a replicated table; its number among those."""
        return (table_L + ids_L) % self.ranks, ids_L // self.ranks

    def summed_ids(self, table_L: Ints, rank_L: Ints | int, number_L: Ints) -> Ints:
        """Return ids of rows from what ``sums_of`` returns."""
        ids_L: Ints = number_L * self.ranks + (rank_L - table_L) % self.ranks
        return ids_L

    def shard_ids(self, t: int, rank: int) -> slice:
        """Ids of table ``t`` in the order of a rank's shard."""
        table = self.tables[t]
        if table.sharding == "row":
            return slice(int((rank - self.first_T[t]) % self.ranks), table.rows, self.ranks)
        return slice(0, table.rows if table.sharding == "replicated" or self.first_T[t] == rank else 0, 1)
