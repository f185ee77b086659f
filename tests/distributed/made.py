"""Embeddings of one dimension, as most tests make them: exact unless they say what travels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from laconic.adapt.compression import Compression
from laconic.exchange import Table
from laconic.exchange.ranks.world import LocalWorld
from laconic.exchange.tables.placement import RowPlacement
from laconic.nn import ShardedEmbeddings

PLACES = ("hot", "hot_every", "warm", "cold_folder", "look_ahead")
EXACT = Compression(rows=None, gradients=None)
"""Rows and gradients travel as they are, ids coded."""


def made(tables: Sequence[Table], dim: int, policy: Any = None, **options: Any) -> ShardedEmbeddings:
    """Make embeddings of this dimension; options of their placement stand beside the others."""
    places = {name: options.pop(name) for name in PLACES if options.get(name) is not None}
    options = {name: value for name, value in options.items() if name not in PLACES}
    tables = [replace(table, dim=dim) for table in tables]
    return ShardedEmbeddings(tables, policy or EXACT, placement=RowPlacement(**places), **options)


def made_local(
    tables: Sequence[Table], dim: int, ranks: int, *, all_remote: bool = False, **options: Any
) -> ShardedEmbeddings:
    """Make embeddings of this many ranks in one process, which one thread takes along."""
    return made(tables, dim, world=LocalWorld(ranks, patience_s=0, all_remote=all_remote), **options)
