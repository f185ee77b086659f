"""What one rank has: its rows, and the exchanges that carry ids, rows and gradients."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

import torch

from laconic.errors import ConfigError
from laconic.exchange.all_remote import AllRemoteIds, AllRemoteRows
from laconic.exchange.ids import IdExchange
from laconic.exchange.ranks.world import World
from laconic.exchange.rows import RowExchange
from laconic.exchange.stale_copies import StaleCopies
from laconic.exchange.tables.copies import HotRows, WarmRows
from laconic.exchange.tables.layout import Layout
from laconic.exchange.tables.optimizer import RowOptimizer
from laconic.exchange.tables.placement import RowPlacement
from laconic.exchange.tables.shards import TableShards
from laconic.exchange.tables.table import Table

__all__ = ["Rank", "RowSettings"]


@dataclass(frozen=True, kw_only=True, slots=True)
class RowSettings:
    """How rows are made, kept and trained; the same for all tables and on all ranks."""

    optimizer: RowOptimizer
    fused: bool
    """Whether ``backward`` updates rows; else gradients wait at their owners for a step."""

    seed: int
    """Seed of the rows' first values."""

    dtype: torch.dtype
    placement: RowPlacement

    def __post_init__(self) -> None:
        if self.dtype not in (torch.float32, torch.float64):
            raise ConfigError(f"embeddings.dtype: expected torch.float32 or torch.float64, got {self.dtype}")
        if not self.fused and (self.placement.hot_every > 1 or self.placement.look_ahead):
            raise ConfigError(
                "embeddings.fused: copies that differ between steps and rows that travel early know of one "
                f"update by one batch only, got fused=False and {self.placement!r}; leave one of them out"
            )


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
    def of(cls, world: World, tables: tuple[Table, ...], settings: RowSettings) -> Rank:
        """Make a rank whose rows are zeros; it has not met the others yet."""
        placement, dim = settings.placement, tables[0].dim
        hot = HotRows(tables, placement.hot)
        differ = placement.hot_every > 1 and bool(hot.ids) and world.ranks > 1
        warm = WarmRows(tables, placement.warm, hot)
        in_file = warm.in_file(Layout(tables, world.ranks, world.rank))
        parts = Layout(hot.parts, world.ranks, world.rank, len(hot.ids) if differ else 0, in_file)
        folder = None if placement.cold_folder is None else Path(placement.cold_folder)
        shards = TableShards(hot, parts, dim, settings.optimizer, settings.dtype, folder)
        places = hot.digest + warm.digest
        kind = (tables, settings.dtype, settings.optimizer, settings.fused, places)
        digest = _digest(*kind, placement.hot_every, placement.look_ahead)
        ids_of, rows_of = (AllRemoteIds, AllRemoteRows) if world.all_remote else (IdExchange, RowExchange)
        ids = ids_of(parts, hot, world.transport("exchange of ids"), digest)
        transport = world.transport("exchange of rows")
        stale = StaleCopies(hot, shards, transport, digest) if differ else None
        rows = rows_of(shards, hot.table_P, transport, before_update=stale)
        return cls(shards, ids, rows, stale, places)


def _digest(*kind: object) -> int:
    """Return a number that differs, most likely, where any of these does."""
    return int.from_bytes(blake2b(repr(kind).encode(), digest_size=8).digest(), "little") >> 1
