"""What a rank answers: rows of its shards for every requester, and what to do with the gradients.

Lists arrive from all ranks, this one included, and are kept in rank order: that is the order in
which contributions to a row are summed. Forward, the rows of other ranks' blocks come first, this
rank's own last (``request`` explains why); gradients lie in the same order. Shape legend: ``N``
ranks, ``T`` tables, ``C`` ids in all lists.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from laconic.errors import CommError
from laconic.exchange.request import IdLists, block_starts
from laconic.exchange.tables.layout import Layout

__all__ = ["Part", "Service"]

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Part:
    """Rows to send: row k is the sum of rows ``index[offsets[k]:offsets[k+1]]`` of the shard, or row ``index[k]``."""

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

    @classmethod
    def of(cls, lists: IdLists, samples_N: Ints, layout: Layout) -> Service:
        """Work out what to send and where gradients go; raises ``CommError`` on lists that cannot be."""
        ranks, tables = lists.counts_NT.shape
        rank_C = np.repeat(np.arange(ranks), lists.counts_NT.sum(axis=1))
        list_C = np.repeat(np.arange(ranks * tables), lists.counts_NT.ravel())
        table_C = list_C - rank_C * tables
        _check_ids(lists.ids, table_C, rank_C, layout)
        held_T = layout.holds(layout.rank)
        bags_NT = np.where(layout.pooled_T & held_T, samples_N[:, None], 0)
        _check_bags(lists, bags_NT, layout)
        gradients_NT = np.where(layout.pooled_T, bags_NT, lists.counts_NT)
        foreign_NT = layout.replicated_T & (np.arange(ranks)[:, None] != layout.rank)
        answers_NT = np.where(foreign_NT, 0, gradients_NT)

        rows_C = layout.rows_of(table_C, lists.ids)
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
        return cls(answers_NT, gradients_NT, remote, own, rows_C, gradient_C, list_C)


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
    totals = np.concatenate([[0], np.cumsum(lists.lengths)])[sums]
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
    offsets = [np.concatenate([[0], np.cumsum(piece)]) for piece in pieces]
    return Part(index[0], offsets[0], rows[0]), Part(index[1], offsets[1], rows[1])
