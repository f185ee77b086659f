"""What a rank asks for: lists of row numbers for every owner, and what to do with the answers.

*Rows* tables: ids are de-duplicated per owner and sorted, each distinct row comes once, bags are
made here. *Pooled* tables: all ids go to the owner in the order of the samples, one vector per
sample comes back (a partial sum from every owner, if the table is split by rows).

Answers lie in one matrix, block after block: those of other ranks in rank order, then this
rank's own; in each the tables in their order. So what arrives is contiguous, and what never
traveled is too. Shape legend: ``N`` ranks, ``T`` tables, ``B`` samples, ``L`` lookups, ``R``
answered rows, ``D`` dimensions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from laconic.errors import ConfigError
from laconic.exchange.tables.hot_rows import HotRows
from laconic.exchange.tables.layout import Layout
from laconic.exchange.tables.table import Table
from laconic.lookups import Lookups

__all__ = ["Bags", "IdLists", "Request", "bags_of", "block_starts", "checked_lookups"]

Ints = NDArray[np.int64]
_LOCAL_BITS = 40  # a table has fewer rows than 2^40


@dataclass(frozen=True, slots=True)
class IdLists:
    """Lists of ids for several ranks, rank after rank, in each table after table."""

    counts_NT: Ints
    """Ids in each list."""
    ids: Ints
    length_counts_NT: Ints
    """Bags in each list of bag lengths: all samples, or none where every bag has one id."""
    lengths: Ints


@dataclass(frozen=True, slots=True)
class Bags:
    """Bag k of the output is the sum of rows ``index[offsets[k]:offsets[k+1]]`` of the answers.

    Without offsets there is one row for each, and bags lie sample by sample; with them, table by table.
    """

    index: Ints
    offsets: Ints | None
    scale_TB: NDArray[np.float64] | None
    """1 / ids of each bag where the mean is wanted."""


@dataclass(frozen=True, slots=True)
class Request:
    """A batch's lookups, sorted by who answers them."""

    samples: int
    lists: IdLists
    answers_NT: Ints
    """Rows that each rank answers for each table."""
    gradients_NT: Ints
    """Rows of gradients that each rank gets; more, for replicated tables, than it answers."""
    bags: Bags

    @classmethod
    def of(cls, lookups: Lookups, layout: Layout, hot: HotRows) -> Request:
        """Route a batch. The layout is that of all parts, of which a table may have two."""
        ranks, tables, samples = layout.ranks, len(layout.tables), lookups.samples
        ids_L, offsets = checked_lookups(lookups, hot.tables)
        count_T = offsets[samples::samples] - offsets[:-1:samples] if samples else np.zeros(0, np.int64)
        table_L, row_L = hot.route(np.repeat(np.arange(len(count_T)), count_T), ids_L)
        owner_L, local_L = layout.locate(table_L, row_L)
        list_L = owner_L * tables + table_L
        pooled_T = layout.pooled_T
        answers_NT = np.zeros((ranks, tables), np.int64)
        for rank in range(ranks):
            answers_NT[rank] = np.where(pooled_T & layout.holds(rank), samples, 0)

        which = ~pooled_T[table_L] if pooled_T.any() else slice(None)
        key = list_L[which] << _LOCAL_BITS | local_L[which]
        distinct, inverse = np.unique(key, return_inverse=True)
        lists, locals_ = distinct >> _LOCAL_BITS, distinct & ((1 << _LOCAL_BITS) - 1)
        counts = np.bincount(lists, minlength=ranks * tables)
        answers_NT += counts.reshape(ranks, tables)
        start_NT = block_starts(answers_NT, layout.rank)
        within = np.arange(len(distinct)) - (np.cumsum(counts) - counts)[lists]
        position_L = np.empty(len(ids_L), np.int64)
        position_L[which] = (start_NT.ravel()[lists] + within)[inverse]

        to_send = _lists_of(layout, samples, lists, locals_, list_L, local_L, table_L, offsets)
        gradients_NT = np.where(layout.replicated_T, answers_NT[layout.rank], answers_NT)
        bags = bags_of(layout, hot.tables, samples, offsets, position_L, start_NT)
        return cls(samples, to_send, answers_NT, gradients_NT, bags)


def block_starts(counts_NT: Ints, rank: int) -> Ints:
    """Where each block begins in a matrix of other ranks' blocks in order, then this rank's own."""
    order = [*(r for r in range(len(counts_NT)) if r != rank), rank]
    sizes = counts_NT[order].ravel()
    starts = np.empty_like(counts_NT)
    starts[order] = (np.cumsum(sizes) - sizes).reshape(counts_NT.shape)
    return starts


def checked_lookups(lookups: Lookups, of: Sequence[Table]) -> tuple[Ints, Ints]:
    """Ids and offsets of lookups that fit the tables."""
    tables = len(of)
    if lookups.tables != tables:
        raise ConfigError(f"lookups: expected {tables} tables, got {lookups.tables}")
    ids, offsets = lookups.ids_L.numpy(), lookups.offsets.numpy()
    lengths = np.diff(offsets)
    if len(lengths) % tables or offsets[0] != 0 or offsets[-1] != len(ids) or (lengths < 0).any():
        raise ConfigError(
            f"lookups: expected offsets that rise from 0 to {len(ids)} for {tables} tables, "
            f"got {len(offsets)} from {offsets[0]} to {offsets[-1]}"
        )
    samples = len(lengths) // tables
    rows_T = np.array([table.rows for table in of])
    limit_L = np.repeat(rows_T, offsets[samples::samples] - offsets[:-1:samples]) if samples else ids
    bad = np.flatnonzero((ids < 0) | (ids >= limit_L))
    if len(bad):
        cell = int(np.searchsorted(offsets, bad[0], side="right")) - 1
        table = of[cell // samples]
        raise ConfigError(
            f"lookups: table {table.name!r} has {table.rows} rows, got id {ids[bad[0]]} in sample "
            f"{cell % samples}; map unknown ids to a row of their own"
        )
    return ids, offsets


def _lists_of(
    layout: Layout,
    samples: int,
    lists: Ints,
    locals_: Ints,
    list_L: Ints,
    local_L: Ints,
    table_L: Ints,
    offsets: Ints,
) -> IdLists:
    ranks, tables = layout.ranks, len(layout.tables)
    length_counts_NT = np.zeros((ranks, tables), np.int64)
    lengths = np.empty(0, np.int64)
    if layout.pooled_T.any():
        pooled = np.flatnonzero(layout.pooled_T[table_L])
        lists = np.concatenate([lists, list_L[pooled]])
        locals_ = np.concatenate([locals_, local_L[pooled]])
        order = np.argsort(lists, kind="stable")  # a list is of one kind only
        lists, locals_ = lists[order], locals_[order]
        cell_L = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))[pooled]
        bag_L = list_L[pooled] * samples + (cell_L % samples if samples else cell_L)
        lengths_NTB = np.bincount(bag_L, minlength=ranks * tables * samples).reshape(ranks, tables, samples)
        held_NT = np.stack([layout.holds(rank) for rank in range(ranks)]) & layout.pooled_T
        uneven_NT = held_NT & (lengths_NTB != 1).any(axis=2)
        length_counts_NT[uneven_NT] = samples
        lengths = lengths_NTB[uneven_NT].ravel()
    counts_NT = np.bincount(lists, minlength=ranks * tables).reshape(ranks, tables)
    if layout.replicated_T.any() and ranks > 1:  # every rank gets the ids, to apply the gradients
        counts_NT, locals_ = _to_everyone(layout, counts_NT, locals_)
    return IdLists(counts_NT, locals_, length_counts_NT, lengths)


def _to_everyone(layout: Layout, counts_NT: Ints, ids: Ints) -> tuple[Ints, Ints]:
    """Repeat this rank's lists of replicated tables for every other rank."""
    own = np.flatnonzero(layout.replicated_T)
    ends = np.cumsum(counts_NT.ravel()).reshape(counts_NT.shape)
    pieces: list[Ints] = []
    for rank in range(layout.ranks):
        for t in range(len(layout.tables)):
            source = layout.rank if t in own else rank
            end = ends[source, t]
            pieces.append(ids[end - counts_NT[source, t] : end])
    counts = np.where(layout.replicated_T, counts_NT[layout.rank], counts_NT)
    return counts, np.concatenate(pieces)


def bags_of(
    layout: Layout, of: Sequence[Table], samples: int, offsets: Ints, position_L: Ints, start_NT: Ints
) -> Bags:
    """How bags of these tables, the first of the layout, are made of answers; ``position_L`` has one for each lookup."""
    tables = len(of)
    pooled_T = layout.pooled_T[:tables]
    lengths = np.diff(offsets)
    single = not (layout.split_T[:tables] & pooled_T).any() or layout.ranks == 1
    if single and pooled_T.all():
        start_T = start_NT[layout.first_T[:tables], np.arange(tables)]
        index_BT = start_T + np.arange(samples)[:, None]
        return Bags(index_BT.ravel(), None, _scale(of, lengths, samples))
    if not pooled_T.any():
        if (lengths == 1).all():
            index_BT = position_L.reshape(tables, samples).T
            return Bags(np.ascontiguousarray(index_BT).ravel(), None, None)
        return Bags(position_L, offsets, _scale(of, lengths, samples))
    # some of both, or partial sums: table by table
    index: list[Ints] = []
    sizes: list[Ints] = []
    for t in range(tables):
        if not pooled_T[t]:
            index.append(position_L[offsets[t * samples] : offsets[(t + 1) * samples]])
            sizes.append(lengths[t * samples : (t + 1) * samples])
            continue
        owners = [rank for rank in range(layout.ranks) if layout.holds(rank)[t]]
        index.append((start_NT[owners, t] + np.arange(samples)[:, None]).ravel())
        sizes.append(np.full(samples, len(owners)))
    ends = np.cumsum(np.concatenate(sizes))
    return Bags(np.concatenate(index), np.concatenate([[0], ends]), _scale(of, lengths, samples))


def _scale(of: Sequence[Table], lengths: Ints, samples: int) -> NDArray[np.float64] | None:
    mean_T = np.array([table.pooling == "mean" for table in of])
    lengths_TB = lengths.reshape(len(mean_T), samples)
    if not (mean_T[:, None] & (lengths_TB > 1)).any():
        return None
    return np.where(mean_T[:, None], 1.0 / np.maximum(lengths_TB, 1), 1.0)
