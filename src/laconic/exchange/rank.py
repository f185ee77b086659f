"""What one rank has: its rows, and the exchanges that carry ids, rows and gradients.

Its rows become a state that can be saved, and only states that fit are taken back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from laconic.errors import ConfigError
from laconic.exchange.all_remote import AllRemoteIds, AllRemoteRows
from laconic.exchange.coder import Coder
from laconic.exchange.exchange_plan import ExchangePlan
from laconic.exchange.ids import IdExchange
from laconic.exchange.ledger import Direction
from laconic.exchange.noise import RoundingCost
from laconic.exchange.ranks.world import World
from laconic.exchange.rows import RowExchange
from laconic.exchange.stale_copies import StaleCopies
from laconic.exchange.tables.copies import HotRows, WarmRows
from laconic.exchange.tables.layout import Layout
from laconic.exchange.tables.optimizer import RowOptimizer
from laconic.exchange.tables.placement import RowPlacement
from laconic.exchange.tables.shards import TableShards
from laconic.exchange.tables.table import Table

__all__ = [
    "Rank",
    "RowSettings",
    "bounds_state",
    "check_state",
    "load_bounds",
    "load_state",
    "rounding_cost",
    "state_of",
    "states_for",
]


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


_SEVERAL = "ranks_here"


def state_of(ranks: Sequence[Rank], tables: Sequence[Table], step: int) -> dict[str, Any]:
    """Return rows, optimizer state and step of the ranks of a process; its tensors are views."""
    states = [
        {
            **{"rank": rank.rows.layout.rank, "ranks": rank.rows.layout.ranks, "step": step},
            **{"weight": rank.shards.weight_RD, "state": rank.shards.state_R, "placed": rank.places},
            "noise": torch.from_numpy(rank.shards.noise.variance_R),
            "bounds": bounds_state(rank),
            "tables": _kinds(tables),
        }
        for rank in ranks
    ]
    return states[0] if len(states) == 1 else {_SEVERAL: states}


def states_for(layout: Layout, ranks: int, state: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the state of each rank of this process; ``ConfigError`` if there are more or fewer.

    Where every rank has all rows, that of any rank does.
    """
    states: list[Mapping[str, Any]] = state.get(_SEVERAL, [state])
    if layout.replicated_T.all():
        states = states if len(states) == ranks else states[:1] * ranks
    if len(states) != ranks:
        raise ConfigError(
            f"embeddings: expected the rows of {ranks} ranks of one process, got those of {len(states)}; load them "
            "where as many ranks are in one process as when state_dict() was called"
        )
    return states


def check_state(rank: Rank, layout: Layout, state: Mapping[str, Any]) -> None:
    """Raise ``ConfigError`` if these are not rows of this rank and of these tables."""
    missing = [key for key in ("step", "weight", "state") if key not in state]
    if missing:
        raise ConfigError(
            f"embeddings: expected a state with step, weight and state, got {', '.join(map(repr, state)) or 'nothing'}; "
            "load what state_dict() returned"
        )
    shards, places = rank.shards, rank.places
    kind = (shards.weight_RD.shape, shards.state_R is None, places)
    if (state["weight"].shape, state["state"] is None, state.get("placed", places)) != kind:
        raise ConfigError(
            f"embeddings: expected a shard of shape {tuple(shards.weight_RD.shape)} with the same optimizer, "
            f"got {tuple(state['weight'].shape)}; tables, ranks, optimizer, hot or warm rows differ"
        )
    _check_tables(layout.tables, state)
    mine = (rank.rows.layout.rank, rank.rows.layout.ranks)
    saved = (state.get("rank", mine[0]), state.get("ranks", mine[1]))  # older states do not say it
    if saved != mine and not layout.replicated_T.all():
        raise ConfigError(
            f"embeddings: expected the shard of rank {mine[0]} of {mine[1]}, got that of rank {saved[0]} of "
            f"{saved[1]}; save state_dict() on every rank, in a file of its own, and load it there"
        )


def load_state(rank: Rank, state: Mapping[str, Any]) -> None:
    """Copy rows and their optimizer state from a state that fits."""
    rank.shards.weight_RD.copy_(state["weight"])
    if rank.shards.state_R is not None:
        rank.shards.state_R.copy_(state["state"])
    rank.shards.noise.reset()
    if "noise" in state:  # older states have none
        torch.from_numpy(rank.shards.noise.variance_R).copy_(state["noise"])
    load_bounds(rank, state.get("bounds"))
    if rank.stale is not None:
        rank.stale.forget()


def bounds_state(rank: Rank) -> dict[str, Any]:
    """Return what a rank's bounds follow from: scales of tables, and what noise was counted."""
    return {
        "scales": rank.rows.scales.state(),
        "noise": rank.shards.noise.state(),
        "placed": rank.places,
    }


def load_bounds(rank: Rank, state: Mapping[str, Any] | None, *, same_ranks: bool = True) -> None:
    """Take back what ``bounds_state`` returned; None: measure anew.

    Where there are other ranks now, only what all had agreed on is taken. Where other rows are hot,
    parts are others: all is measured anew.
    """
    if state is not None and state["placed"] != rank.places:
        state = None
    rank.rows.scales.restore(None if state is None else state["scales"], noted=same_ranks)
    nothing = {"figures": np.zeros((len(rank.shards.layout.tables), 2)), "updates": 0}
    rank.shards.noise.restore(state["noise"] if state is not None and same_ranks else nothing)


def rounding_cost(rank: Rank, plan: ExchangePlan) -> RoundingCost:
    """Return what rounding cost when ranks last added it up; ``plan``: that of all parts."""
    scales, layout, tables = rank.rows.scales, rank.shards.layout, len(rank.shards.hot.tables)
    parts = len(layout.tables)

    def by_table(figure_P: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.bincount(rank.shards.hot.table_P, figure_P, tables).astype(np.float64)

    def variance_and_rows(direction: Direction) -> tuple[NDArray[np.float64], ...]:
        """Return variance of rounding, mean square of values, and rows, of each part."""
        coder = Coder(
            scales.codecs(plan, direction), rank.shards.weight.shape[1], rank.shards.weight_RD.dtype
        )
        found = scales.of(direction)
        none_P = np.zeros(parts)
        squares_P, rows_P = (none_P, none_P) if found is None else (found.rms_P**2, found.rows_P)
        return coder.grid_step_T**2 / 6, squares_P, rows_P

    rows_P, row_squares_P, row_counts_P = variance_and_rows("forward")
    sent = 1.0 if rank.rows.rounds_own else (layout.ranks - 1) / layout.ranks
    # replicas, and what a rank owns, are read where they are
    rows_P = np.where(layout.replicated_T, 0.0, sent * rows_P)
    gradients_P, gradient_squares_P, counts_P = variance_and_rows("backward")
    noise_P, curvature_P = scales.noise_2P
    return RoundingCost(
        rows_T=by_table(curvature_P * rows_P),
        gradients_T=by_table(noise_P),
        sent_T=by_table(counts_P),
        rows_error_T=_share(by_table(rows_P * row_counts_P), by_table(row_squares_P * row_counts_P)),
        gradients_error_T=_share(by_table(gradients_P * counts_P), by_table(gradient_squares_P * counts_P)),
    )


def _share(part_T: NDArray[np.float64], whole_T: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.divide(part_T, whole_T, out=np.zeros(len(part_T)), where=whole_T > 0)


def _kinds(tables: Sequence[Table]) -> list[tuple[str, int, str, int | None]]:
    """Return what says where rows of tables are in a shard."""
    return [(table.name, table.rows, table.sharding, table.owner) for table in tables]


def _check_tables(tables: Sequence[Table], state: Mapping[str, Any]) -> None:
    mine = _kinds(tables)
    saved = [tuple(kind) for kind in state.get("tables", mine)]  # older states do not say it
    if len(saved) != len(mine):
        raise ConfigError(
            f"embeddings: expected rows of {len(mine)} tables, got those of {len(saved)}; make the same tables"
        )
    for expected, got in zip(mine, saved, strict=True):
        if expected != got:
            raise ConfigError(
                f"embeddings: expected rows of table {_text(expected)}, got those of {_text(got)}; make the same "
                "tables in the same order"
            )


def _text(kind: tuple[Any, ...]) -> str:
    name, rows, sharding, owner = kind
    return f"{name!r} ({rows} rows, sharding {sharding!r}, owner {owner})"
