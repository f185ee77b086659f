"""What one rank has: its rows, and the exchanges that carry ids, rows and gradients."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

import torch

from laconic.exchange.all_remote import AllRemoteIds, AllRemoteRows
from laconic.exchange.ids import IdExchange
from laconic.exchange.rows import RowExchange
from laconic.exchange.stale_copies import StaleCopies
from laconic.exchange.tables.copies import HotRows, WarmRows
from laconic.exchange.tables.layout import Layout
from laconic.exchange.tables.optimizer import RowOptimizer
from laconic.exchange.tables.shards import TableShards
from laconic.exchange.tables.table import Table
from laconic.exchange.world import World

__all__ = ["Placed", "Rank"]


@dataclass(frozen=True, slots=True)
class Placed:
    """Tables, and where their rows are."""

    tables: tuple[Table, ...]
    dim: int
    dtype: torch.dtype
    optimizer: RowOptimizer
    hot: Mapping[str, Any] | None = None
    """Ascending ids of rows, by table, of which every rank has a copy."""
    hot_every: int = 1
    """Steps after which these copies are made equal."""
    warm: Mapping[str, Any] | None = None
    """Ascending ids of rows of cold tables, by table, that stay in memory."""
    cold_folder: Path | None = None
    """Folder of the files that hold the other rows of cold tables."""
    look_ahead: bool = False
    """Whether some rows of a batch travel when it is prefetched."""
    all_remote: bool = False
    """Whether a rank's own rows are sent to itself, as if it had few of those that it looks up."""


@dataclass(frozen=True, slots=True, eq=False)
class Rank:
    """One rank, in whatever process it is."""

    shards: TableShards
    ids: IdExchange
    rows: RowExchange
    stale: StaleCopies | None
    """Copies of hot rows that may differ; None where they are always equal."""
    places: str
    """Text that differs where hot or warm rows do."""

    @classmethod
    def of(cls, world: World, placed: Placed) -> Rank:
        """Make a rank whose rows are zeros; it has not met the others yet."""
        hot = HotRows(placed.tables, placed.hot)
        differ = placed.hot_every > 1 and bool(hot.ids) and world.ranks > 1
        warm = WarmRows(placed.tables, placed.warm, hot)
        in_file = warm.in_file(Layout(placed.tables, world.ranks, world.rank))
        parts = Layout(hot.parts, world.ranks, world.rank, len(hot.ids) if differ else 0, in_file)
        shards = TableShards(hot, parts, placed.dim, placed.optimizer, placed.dtype, placed.cold_folder)
        places = hot.digest + warm.digest
        kind = (placed.tables, placed.dim, placed.dtype, placed.optimizer, places)
        digest = _digest(*kind, placed.hot_every, placed.look_ahead)
        ids_of, rows_of = (AllRemoteIds, AllRemoteRows) if placed.all_remote else (IdExchange, RowExchange)
        ids = ids_of(parts, hot, world.transport("exchange of ids"), digest)
        transport = world.transport("exchange of rows")
        stale = StaleCopies(hot, shards, transport, digest) if differ else None
        rows = rows_of(shards, hot.table_P, transport, before_update=stale)
        return cls(shards, ids, rows, stale, places)


def _digest(*kind: object) -> int:
    """Return a number that differs, most likely, where any of these does."""
    return int.from_bytes(blake2b(repr(kind).encode(), digest_size=8).digest(), "little") >> 1
