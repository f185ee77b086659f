"""Gradients of replicated rows that owners sum and send to all, where that moves fewer rows.

Ids of replicated tables go to every rank. So all ranks know who has gradients of which rows, and
decide alike, table by table. ``U`` is the number of distinct rows of a rank, ``V`` that of all
ranks together; a way costs the rows that it moves::

    everyone to everyone   (N - 1) sum of U
    by owners              (N - 1) / N sum of U  +  (N - 1) V

The owner of a row is the rank that has its segment of the V rows in their order. It adds in rank
order, so the sum has the same bits either way. Only gradients that stay exact go this way, because
a sum would be rounded once more. Shape legend: ``N`` ranks, ``T`` tables, ``C`` ids in all lists,
``K`` of them that go this way, ``V`` their distinct rows, ``D`` dimensions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from laconic import kernels
from laconic.cost.link import owners_pay
from laconic.exchange.ranks.heads import Head
from laconic.exchange.ranks.stages import Stages
from laconic.exchange.ranks.transport import Message, Transport, bounds_of, even_bounds
from laconic.exchange.tables.keys import RowKey

__all__ = ["OwnerSums"]

Ints = NDArray[np.int64]
Rows = NDArray[Any]


@dataclass(frozen=True, slots=True)
class OwnerSums:
    """What goes this way in one step."""

    ranks: int
    tables_T: NDArray[np.bool_]
    at_K: Ints
    """Which contributions, of all; in rank order."""
    rank_K: Ints
    table_K: Ints
    union_K: Ints
    """Which of the distinct rows each is."""
    rows_V: Ints
    table_V: Ints
    bounds: Ints
    """Where each rank's segment of the distinct rows begins, and the last ends."""

    @classmethod
    def choose(cls, list_C: Ints, rows_C: Ints, may_T: NDArray[np.bool_], ranks: int) -> OwnerSums | None:
        """Find the tables that should go this way.

        ``list_C`` is rank x T + table of every id in rank order.
        """
        if ranks < 3 or not may_T.any():
            return None
        tables = len(may_T)
        table_C = list_C % tables
        at_K = np.flatnonzero(may_T[table_C])
        key_K = RowKey.pack(table_C[at_K], rows_C[at_K])  # by table first: ranks' matrices have other orders
        key_V = np.unique(key_K)
        lookups_T, rows_T = (np.bincount(RowKey.table(key), minlength=tables) for key in (key_K, key_V))
        chosen_T = owners_pay(lookups_T, rows_T, ranks)
        if not chosen_T.any():
            return None
        chosen_K = chosen_T[RowKey.table(key_K)]
        key_V, union_K = np.unique(key_K[chosen_K], return_inverse=True)
        at_K = at_K[chosen_K]
        bounds = even_bounds(len(key_V), ranks)
        rank_K = list_C[at_K] // tables
        rows_V, table_V = RowKey.row(key_V), RowKey.table(key_V)
        return cls(ranks, chosen_T, at_K, rank_K, table_C[at_K], union_K, rows_V, table_V, bounds)

    @property
    def owner_K(self) -> Ints:
        """Rank that sums each contribution."""
        return np.searchsorted(self.bounds[1:], self.union_K, side="right")

    def sent_rows_T(self, rank: int) -> Ints:
        """Rows of each table that a rank sends, as contributions and as sums."""
        tables = len(self.tables_T)
        away = (self.rank_K == rank) & (self.owner_K != rank)
        own_V = self.table_V[self.bounds[rank] : self.bounds[rank + 1]]
        sums_T = np.bincount(own_V, minlength=tables) * (self.ranks - 1)
        sent_T: Ints = np.bincount(self.table_K[away], minlength=tables) + sums_T
        return sent_T

    def exchange(
        self, transport: Transport, rows_KD: Rows, out_VD: Rows, turn: int, digest: int
    ) -> Stages[int]:
        """Fill ``out_VD`` with the sums; of ``rows_KD`` those of this rank are read.

        All ranks know who sends how many. Returns the bytes that announced it all the same.
        """
        rank, ranks, owner_K = transport.rank, transport.ranks, self.owner_K
        mine, owned = self.rank_K == rank, owner_K == rank
        away = np.flatnonzero(mine & ~owned)
        away = away[np.argsort(owner_K[away], kind="stable")]
        sent_N = np.bincount(owner_K[away], minlength=ranks)
        coming_N = np.bincount(self.rank_K[owned & ~mine], minlength=ranks)
        none = np.zeros((ranks, 1), np.int64)
        announced = transport.send(Head(turn, digest, 0, sent_N[:, None], none, counts_known=True))
        yield
        transport.hear(coming_N[:, None])
        theirs = np.empty((int(coming_N.sum()), out_VD.shape[1]), out_VD.dtype)
        row = out_VD.shape[1]
        sent = Message.each(np.ascontiguousarray(rows_KD[away]).reshape(-1), sent_N * row)
        swapped = transport.begin_swap(theirs.reshape(-1), sent, coming_N * row)
        yield
        swapped()
        rows_KD[owned & ~mine] = theirs  # both in rank order
        sums = out_VD[self.bounds[rank] : self.bounds[rank + 1]]
        of_owned = np.flatnonzero(owned)
        order = np.argsort(self.union_K[of_owned], kind="stable")
        counts = np.bincount(self.union_K[of_owned] - self.bounds[rank], minlength=len(sums))
        kernels.active().sum_bags(sums, rows_KD, of_owned[order], bounds_of(counts))
        to_all, row_N = Message.same(sums.reshape(-1), ranks), np.diff(self.bounds) * row
        swapped = transport.begin_swap(out_VD.reshape(-1), to_all, row_N)
        yield
        swapped()
        return announced
