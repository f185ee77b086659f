"""Who asks whom for what: lists of row numbers for every owner, and what to do with the answers.

A **request** is what a rank asks for. For tables that send *rows*, ids are de-duplicated per owner
and sorted; each distinct row comes once, and the requester makes the bags. For *pooled* tables all
ids go to the owner in the order of the samples, and one vector per sample comes back. If such a
table is sharded row-wise, every owner sends a partial sum.

A **service** is what a rank answers: rows of its shards for every requester, and what to do with
their gradients. Lists arrive from all ranks, this one included, and are kept in rank order. That is
the order in which contributions to a row are summed.

Answers lie in one matrix, block after block: those of other ranks in rank order, then this rank's
own, and in each block the tables in their order. So what arrives is contiguous, and what never
traveled is too. Gradients lie in the same order. Shape legend: ``N`` ranks, ``T`` tables, ``B``
samples, ``L`` lookups, ``R`` answered rows, ``D`` dimensions, ``C`` ids in all lists.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from laconic.errors import CommError, ConfigError
from laconic.exchange.bags import Bags
from laconic.exchange.ranks.transport import bounds_of
from laconic.exchange.tables.copies import HotRows
from laconic.exchange.tables.keys import RowKey, distinct_keys, stable_order
from laconic.exchange.tables.layout import Layout
from laconic.exchange.tables.table import Table
from laconic.lookups import Lookups

__all__ = [
    "IdLists",
    "Part",
    "Request",
    "Service",
    "block_starts",
    "checked_lookups",
]

Ints = NDArray[np.int64]


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
class Request:
    """A batch's lookups, sorted by who answers them."""

    samples: int
    lists: IdLists
    answers_NT: Ints
    """Rows that each rank answers for each table."""
    gradients_NT: Ints
    """Rows of gradients that each rank gets; this one gets all that it answers itself."""
    sent_G: Ints | None
    """Which rows of gradients the others get, in the order in which they are sent; None: all that
    they answer."""
    bags: Bags

    @classmethod
    def of(cls, lookups: Lookups, layout: Layout, hot: HotRows) -> Request:
        """Route a batch. The layout is that of all parts, of which a table may have two."""
        lookups = lookups.for_tables([table.name for table in hot.tables])
        ranks, tables, samples = layout.ranks, len(layout.tables), lookups.samples
        ids_L, offsets = checked_lookups(lookups, hot.tables)
        count_T = offsets[samples::samples] - offsets[:-1:samples] if samples else np.zeros(0, np.int64)
        table_L, row_L = hot.route(np.repeat(np.arange(len(count_T)), count_T), ids_L)
        owner_L, local_L = layout.locate(table_L, row_L)
        list_L = owner_L * tables + table_L
        pooled_T = layout.pooled_T
        answers_NT = np.zeros((ranks, tables), np.int64)
        which: slice | NDArray[np.bool_] = slice(None)
        if pooled_T.any():
            which = ~pooled_T[table_L]
            for rank in range(ranks):
                answers_NT[rank] = np.where(pooled_T & layout.holds(rank), samples, 0)

        distinct, inverse = distinct_keys(RowKey.pack(list_L[which], local_L[which]))
        lists, locals_ = RowKey.table(distinct), RowKey.row(distinct)
        counts = np.bincount(lists, minlength=ranks * tables)
        answers_NT += counts.reshape(ranks, tables)
        start_NT = block_starts(answers_NT, layout.rank)
        within = np.arange(len(distinct)) - (np.cumsum(counts) - counts)[lists]
        position_R = start_NT.ravel()[lists] + within
        position_L = np.empty(len(ids_L), np.int64)
        if len(inverse) == len(ids_L):
            np.take(position_R, inverse, out=position_L, mode="clip")
        else:
            position_L[which] = position_R[inverse]

        pooled = _PooledLookups.of(layout, samples, list_L, table_L, offsets)
        gradients_NT, sent_G = answers_NT, None
        if layout.replicated_T.any() and ranks > 1:
            copied, at_K = _to_sum(layout, lists, locals_)
            gradients_NT = answers_NT + np.bincount(copied[0], minlength=ranks * tables).reshape(
                ranks, tables
            )
            sent_G = _sent_order(layout, start_NT, gradients_NT, position_R[at_K])
            lists, locals_ = _joined((lists, locals_), copied)
        to_send = _lists_of(layout, (lists, locals_), (list_L, local_L), pooled)
        bags = Bags.of(layout, hot.tables, offsets, position_L, start_NT)
        if lookups.weights_L is not None:
            bags = bags.weighted(lookups.weights_L, hot.tables)
        return cls(samples, to_send, answers_NT, gradients_NT, sent_G, bags)


def block_starts(counts_NT: Ints, rank: int) -> Ints:
    """Where each block begins in a matrix of other ranks' blocks in order, then this rank's own."""
    order = [*(r for r in range(len(counts_NT)) if r != rank), rank]
    sizes = counts_NT[order].ravel()
    starts = np.empty_like(counts_NT)
    starts[order] = (np.cumsum(sizes) - sizes).reshape(counts_NT.shape)
    return starts


def _to_sum(layout: Layout, lists: Ints, ids: Ints) -> tuple[tuple[Ints, Ints], Ints]:
    """Find ids of replicated tables that other ranks get, to sum gradients: lists, and the ids.

    Ids are numbers among the rows that a rank sums. Returns also which of the given ids they are.
    On two ranks the other one gets all.
    """
    tables = len(layout.tables)
    at_K = np.flatnonzero(layout.replicated_T[lists % tables])
    table_K, id_K = lists[at_K] % tables, ids[at_K]
    if layout.summed_T.any():
        rank_K, id_K = layout.sums_of(table_K, id_K)
        away = rank_K != layout.rank
        at_K, rank_K, table_K, id_K = (values[away] for values in (at_K, rank_K, table_K, id_K))
    else:
        rank_K = np.full(len(at_K), 1 - layout.rank)
    order = stable_order(rank_K)
    return ((rank_K * tables + table_K)[order], id_K[order]), at_K[order]


def _joined(one: tuple[Ints, Ints], other: tuple[Ints, Ints]) -> tuple[Ints, Ints]:
    """Join lists, and their ids, which keep their order."""
    lists = np.concatenate([one[0], other[0]])
    order = stable_order(lists)
    return lists[order], np.concatenate([one[1], other[1]])[order]


def _sent_order(layout: Layout, start_NT: Ints, sent_NT: Ints, copied_K: Ints) -> Ints:
    """Rows of a gradient in the order in which they are sent.

    They are those that others answer, where they are, and ``copied_K`` of replicated tables.
    """
    others = np.arange(layout.ranks) != layout.rank
    counts = sent_NT[others].ravel()
    within = np.arange(int(counts.sum())) - np.repeat(np.cumsum(counts) - counts, counts)
    index: Ints = np.repeat(start_NT[others].ravel(), counts) + within
    index[np.repeat(np.tile(layout.replicated_T, layout.ranks - 1), counts)] = copied_K
    return index


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


@dataclass(frozen=True, slots=True)
class _PooledLookups:
    """Lookups of tables that their owners pool, and the lengths of their bags."""

    at: Ints
    """Which of all lookups."""
    length_counts_NT: Ints
    lengths: Ints

    @classmethod
    def of(cls, layout: Layout, samples: int, list_L: Ints, table_L: Ints, offsets: Ints) -> _PooledLookups:
        """Find them; lengths travel where some bag of a list has other than one id."""
        ranks, tables = layout.ranks, len(layout.tables)
        length_counts_NT = np.zeros((ranks, tables), np.int64)
        if not layout.pooled_T.any():
            return cls(np.empty(0, np.int64), length_counts_NT, np.empty(0, np.int64))
        at = np.flatnonzero(layout.pooled_T[table_L])
        cell_L = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))[at]
        bag_L = list_L[at] * samples + (cell_L % samples if samples else cell_L)
        lengths_NTB = np.bincount(bag_L, minlength=ranks * tables * samples).reshape(ranks, tables, samples)
        held_NT = np.stack([layout.holds(rank) for rank in range(ranks)]) & layout.pooled_T
        uneven_NT = held_NT & (lengths_NTB != 1).any(axis=2)
        length_counts_NT[uneven_NT] = samples
        return cls(at, length_counts_NT, lengths_NTB[uneven_NT].ravel())


def _lists_of(
    layout: Layout, distinct: tuple[Ints, Ints], every_L: tuple[Ints, Ints], pooled: _PooledLookups
) -> IdLists:
    """Join distinct rows, and all rows that are pooled, list by list; both as lists and rows."""
    lists, locals_ = distinct
    if len(pooled.at):
        lists = np.concatenate([lists, every_L[0][pooled.at]])
        locals_ = np.concatenate([locals_, every_L[1][pooled.at]])
        order = stable_order(lists)  # a list is of one kind only
        lists, locals_ = lists[order], locals_[order]
    ranks, tables = layout.ranks, len(layout.tables)
    counts_NT = np.bincount(lists, minlength=ranks * tables).reshape(ranks, tables)
    return IdLists(counts_NT, locals_, pooled.length_counts_NT, pooled.lengths)


@dataclass(frozen=True, slots=True)
class Part:
    """Rows to send.

    Row k is the sum of rows ``index[offsets[k]:offsets[k+1]]`` of the shard; without offsets it is
    row ``index[k]``.
    """

    index: Ints
    offsets: Ints | None
    rows: int


@dataclass(frozen=True, slots=True)
class Service:
    """The lists of all ranks, as work for this one."""

    answers_NT: Ints
    """Rows to send to each rank."""
    gradients_NT: Ints
    """Rows of gradients to expect from each rank."""
    remote: Part
    own: Part
    rows_C: Ints
    """Row of this rank's matrix that each id names, in rank order."""
    gradient_C: Ints
    """Row of the gradients that it gets."""
    list_C: Ints
    """List that it is of: rank x T + table."""
    id_C: Ints
    """Its number in this rank's shard of the table."""

    @classmethod
    def of(cls, lists: IdLists, samples_N: Ints, layout: Layout) -> Service:
        """Work out what to send and where gradients go; ``CommError`` for lists that cannot be."""
        ranks, tables = lists.counts_NT.shape
        rank_C = np.repeat(np.arange(ranks), lists.counts_NT.sum(axis=1))
        list_C = np.repeat(np.arange(ranks * tables), lists.counts_NT.ravel())
        table_C = list_C - rank_C * tables
        ids_C = lists.ids
        if layout.summed_T.any():
            of_others_C = layout.summed_T[table_C] & (rank_C != layout.rank)
            ids_C = np.where(of_others_C, layout.summed_ids(table_C, layout.rank, ids_C), ids_C)
        _check_ids(ids_C, table_C, rank_C, layout)
        held_T = layout.holds(layout.rank)
        bags_NT = np.where(layout.pooled_T & held_T, samples_N[:, None], 0)
        _check_bags(lists, bags_NT, layout)
        gradients_NT = np.where(layout.pooled_T, bags_NT, lists.counts_NT)
        foreign_NT = layout.replicated_T & (np.arange(ranks)[:, None] != layout.rank)
        answers_NT = np.where(foreign_NT, 0, gradients_NT)

        rows_C = layout.rows_of(table_C, ids_C)
        before_C = (np.cumsum(lists.counts_NT.ravel()) - lists.counts_NT.ravel())[list_C]
        bag_C = np.arange(len(rows_C)) - before_C
        lengths = None
        if lists.length_counts_NT.any():
            lengths = _row_lengths(lists, gradients_NT)
            row_of_C = np.repeat(np.arange(len(lengths)), lengths)
            bag_C = row_of_C - (np.cumsum(gradients_NT.ravel()) - gradients_NT.ravel())[list_C]
        gradient_C = block_starts(gradients_NT, layout.rank).ravel()[list_C] + bag_C
        answered_C = ~foreign_NT.ravel()[list_C] if foreign_NT.any() else None
        if answered_C is not None and lengths is not None:
            lengths = lengths[np.repeat(~foreign_NT.ravel(), gradients_NT.ravel())]
        remote, own = _parts(rows_C, rank_C, answered_C, lengths, answers_NT, layout.rank)
        return cls(answers_NT, gradients_NT, remote, own, rows_C, gradient_C, list_C, ids_C)


def _check_ids(ids: Ints, table_C: Ints, rank_C: Ints, layout: Layout) -> None:
    shard_T = layout.shard_rows(layout.rank)
    bad = np.flatnonzero((ids < 0) | (ids >= shard_T[table_C]))
    if len(bad):
        table = int(table_C[bad[0]])
        raise CommError(
            f"exchange: rank {rank_C[bad[0]]} asks rank {layout.rank} for row {ids[bad[0]]} of its "
            f"{shard_T[table]} rows of table {layout.tables[table].name!r}; the ranks' tables differ"
        )


def _check_bags(lists: IdLists, bags_NT: Ints, layout: Layout) -> None:
    missing = (lists.length_counts_NT == 0) & (bags_NT > 0) & (lists.counts_NT != bags_NT)
    wrong = (lists.length_counts_NT != 0) & (lists.length_counts_NT != bags_NT)
    sums = np.zeros(lists.counts_NT.size + 1, np.int64)
    sums[1:] = np.cumsum(lists.length_counts_NT.ravel())
    totals = bounds_of(lists.lengths)[sums]
    unequal = (lists.length_counts_NT != 0) & (np.diff(totals).reshape(bags_NT.shape) != lists.counts_NT)
    if (missing | wrong | unequal).any() or (lists.lengths < 0).any():
        rank, table = np.argwhere(missing | wrong | unequal | (lists.length_counts_NT > 0))[0]
        raise CommError(
            f"exchange: bag lengths of rank {rank} for table {layout.tables[table].name!r} do not fit "
            f"its {bags_NT[rank, table]} samples and {lists.counts_NT[rank, table]} ids"
        )


def _row_lengths(lists: IdLists, gradients_NT: Ints) -> Ints:
    """How many ids each row of the answers is made of, block by block in rank order."""
    lengths = np.ones(int(gradients_NT.sum()), np.int64)
    given = np.repeat(lists.length_counts_NT.ravel() > 0, gradients_NT.ravel())
    lengths[given] = lists.lengths
    return lengths


def _parts(
    rows_C: Ints,
    rank_C: Ints,
    answered_C: NDArray[np.bool_] | None,
    lengths: Ints | None,
    answers_NT: Ints,
    rank: int,
) -> tuple[Part, Part]:
    if answered_C is not None:
        rows_C, rank_C = rows_C[answered_C], rank_C[answered_C]
    first, last = np.searchsorted(rank_C, [rank, rank + 1])
    index = (np.concatenate([rows_C[:first], rows_C[last:]]), rows_C[first:last])
    answers = answers_NT.sum(axis=1)
    before, own = int(answers[:rank].sum()), int(answers[rank])
    rows = (int(answers.sum()) - own, own)
    if lengths is None:
        return Part(index[0], None, rows[0]), Part(index[1], None, rows[1])
    pieces = (np.concatenate([lengths[:before], lengths[before + own :]]), lengths[before : before + own])
    offsets = [bounds_of(piece) for piece in pieces]
    return Part(index[0], offsets[0], rows[0]), Part(index[1], offsets[1], rows[1])
