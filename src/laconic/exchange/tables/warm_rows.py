"""Warm rows: those of a cold table that are in memory all the same, because they are looked up often.

The table keeps a place for them in the file, so that its shard is one matrix in the order of ids, and whoever reads or writes
shards has no second case. Only their owner knows: where a lookup arrives, ``Layout.rows_of`` names the copy in
memory instead of the place. No message is another, so neither are bytes, rounding, or order of sums. What is in the
place is old until ``WarmCopies`` writes it back. Shape legend: ``T`` tables, ``W`` warm rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import NDArray

from laconic.errors import PlanError
from laconic.exchange.tables.bit_ranks import BitRanks
from laconic.exchange.tables.hot_rows import HotRows
from laconic.exchange.tables.layout import Layout
from laconic.exchange.tables.row_ids import checked_ids
from laconic.exchange.tables.table import Table

__all__ = ["WarmRows"]

Ints = NDArray[np.int64]


class WarmRows:
    """Which rows of which tables are warm; none, if it is given none."""

    def __init__(self, tables: Sequence[Table], ids: Mapping[str, Any] | None, hot: HotRows) -> None:
        """``ids``: of each table that has warm rows, ascending; ``PlanError`` for what cannot be."""
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

    def in_file(self, layout: Layout) -> BitRanks | None:
        """Which rows of a rank's file they are; None where it has none of them."""
        mine = [np.empty(0, np.int64)]
        for t, ids_W in self.ids.items():
            rank_W, local_W = layout.locate(np.full(len(ids_W), t), ids_W)
            mine.append(layout.place_T[t] + local_W[rank_W == layout.rank])
        rows_W = np.concatenate(mine)
        return BitRanks(layout.file_rows, rows_W) if len(rows_W) else None

    @property
    def digest(self) -> str:
        """Text that differs where warm rows do."""
        found = blake2b(digest_size=8)
        for t, ids_W in self.ids.items():
            found.update(np.array([t, len(ids_W)]).tobytes() + ids_W.tobytes())
        return found.hexdigest()
