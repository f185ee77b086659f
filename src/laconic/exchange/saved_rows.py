"""The rows of one rank as a state that can be saved: what is in it, and which states fit a rank."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from laconic.errors import ConfigError
from laconic.exchange.rank import Rank
from laconic.exchange.tables.layout import Layout
from laconic.exchange.tables.table import Table

__all__ = ["check_state", "load_state", "state_of", "states_for"]

_SEVERAL = "ranks_here"


def state_of(ranks: Sequence[Rank], tables: Sequence[Table], step: int) -> dict[str, Any]:
    """Return rows, optimizer state and step of the ranks of a process; its tensors are views."""
    states = [
        {
            **{"rank": rank.rows.layout.rank, "ranks": rank.rows.layout.ranks, "step": step},
            **{"weight": rank.shards.weight_RD, "state": rank.shards.state_R, "placed": rank.places},
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
    if rank.stale is not None:
        rank.stale.forget()


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
