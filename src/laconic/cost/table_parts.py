"""The engine's ways to spread a table, as holdings, and tables with hot rows as parts."""

from __future__ import annotations

from dataclasses import replace

from laconic.cost.part import Holding, Part
from laconic.errors import PlanError

__all__ = ["holding_of", "with_hot_rows"]


def holding_of(sharding: str, ranks: int, owner: int = 0) -> Holding:
    """Where rows are under ``sharding`` of a ``Table``; ``owner`` has a whole one."""
    if sharding == "table":
        return Holding.whole(ranks, owner)
    if sharding == "row":
        return Holding.dealt(ranks)
    if sharding == "replicated":
        return Holding.everywhere(ranks)
    raise PlanError(f"holding: no such sharding {sharding!r} (known: table, row, replicated)")


def with_hot_rows(part: Part, hot: int) -> tuple[Part, ...]:
    """Put copies of a table's likeliest rows everywhere; the others stay where they are."""
    head, tail = part.frequencies.cut(hot)
    everywhere = replace(part, frequencies=head, holding=Holding.everywhere(part.holding.ranks))
    pieces = (everywhere, replace(part, frequencies=tail))
    return tuple(piece for piece in pieces if piece.frequencies.rows)
