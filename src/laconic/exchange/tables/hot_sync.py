"""Copies of hot rows that are made equal every few steps, and trained by each rank alone in between.

In between, a rank updates its copies by its own gradients, so that it sees what it learns, and keeps their sums.
To synchronize, copies go back to where they were equal, and one update by the gradients of all ranks and steps, summed in
rank order, takes them on: nothing is lost, and what each rank did alone is corrected. With plain SGD the result
is that of all the updates; an adaptive optimizer sees one large batch instead of several.

The exchange is that of a replicated table: ids of the rows that ranks have touched, then their gradients, coded as the plan
says. Shape legend: ``H`` hot rows of all tables, which are neighbors in the rank's matrix, ``D`` dimensions, ``U`` rows
touched by this rank since copies were equal, ``C`` contributions of a step.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from laconic.exchange.exchange_plan import ExchangePlan
from laconic.exchange.id_exchange import exchange_ids
from laconic.exchange.ledger import Ledger
from laconic.exchange.row_exchange import RowExchange
from laconic.exchange.tables.hot_rows import HotRows
from laconic.exchange.tables.layout import Layout
from laconic.exchange.tables.optimizer import RowOptimizer
from laconic.exchange.wire import Wire
from laconic.lookups import Lookups

__all__ = ["HotSync"]

Ints = NDArray[np.int64]
Rows = NDArray[Any]


class HotSync:
    """The copies of one rank; used by the thread of its rows."""

    def __init__(
        self,
        hot: HotRows,
        layout: Layout,
        weight_RD: torch.Tensor,
        state_R: torch.Tensor | None,
        optimizer: RowOptimizer,
        wire: Wire,
        digest: int,
    ) -> None:
        """``layout``: of all parts."""
        tables = len(hot.tables)
        copied = hot.parts[tables:]
        self._first = int(layout.base_T[tables])
        rows = slice(self._first, self._first + sum(part.rows for part in copied))
        weight_HD, state_H = weight_RD[rows], None if state_R is None else state_R[rows]
        self._weight = weight_HD.numpy()
        self._state = None if state_H is None else state_H.numpy()
        self._hot, self._layout, self._digest = (
            HotRows(copied),
            Layout(copied, layout.ranks, layout.rank),
            digest,
        )
        self.exchange = RowExchange(self._layout, self._hot, weight_HD, state_H, optimizer, wire)
        self._ledger, self._tables = Ledger(tuple(part.name for part in copied)), tables
        self._touched_H = np.zeros(len(self._weight), bool)
        self._gradient_HD = np.zeros_like(self._weight)
        self._equal_HD = np.zeros_like(self._weight)
        self._equal_H = None if self._state is None else np.zeros_like(self._state)
        self._saved: tuple[Rows, Rows | None] | None = None
        self.steps = 0
        """Updates since copies were equal."""

    def note(self, rows_C: Ints, gradients: Rows, gradient_C: Ints) -> None:
        """Keep the gradients of this rank's copies, which are about to be updated by them; each row has one at most."""
        self.steps += 1
        hot = np.flatnonzero((rows_C >= self._first) & (rows_C < self._first + len(self._weight)))
        rows = rows_C[hot] - self._first
        fresh = rows[~self._touched_H[rows]]
        self._equal_HD[fresh] = self._weight[fresh]
        if self._state is not None and self._equal_H is not None:
            self._equal_H[fresh] = self._state[fresh]
        self._touched_H[rows] = True
        self._gradient_HD[rows] += gradients[gradient_C[hot]]

    def synchronize(self, turn: int, step: int, plan: ExchangePlan, ledger: Ledger) -> None:
        """Make copies equal on all ranks, which call it alike; ``plan`` is that of all parts."""
        rows_U = np.flatnonzero(self._touched_H)
        self._weight[rows_U] = self._equal_HD[rows_U]
        if self._state is not None and self._equal_H is not None:
            self._state[rows_U] = self._equal_H[rows_U]
        routed = exchange_ids(
            self._lookups(rows_U),
            turn,
            coded=plan.coded_ids,
            layout=self._layout,
            hot=self._hot,
            digest=self._digest ^ int(plan.coded_ids),
            wire=self.exchange.wire,
            ledger=self._ledger,
        )
        gradient_UD = torch.from_numpy(self._gradient_HD[rows_U])
        copied = replace(plan, tables=plan.tables[self._tables :])
        self.exchange.backward(routed, copied, step, self._ledger, gradient_UD)
        self._gradient_HD[rows_U] = 0
        self._touched_H[rows_U] = False
        self.steps = 0
        ledger.take_over(self._ledger, self._tables)

    def save(self) -> None:
        """Remember copies that are equal, for ``go_back``."""
        self._saved = (self._weight.copy(), None if self._state is None else self._state.copy())

    def go_back(self) -> None:
        """Make copies what they were, and forget what was learnt since."""
        assert self._saved is not None, "save comes first"
        self._weight[:] = self._saved[0]
        if self._state is not None and self._saved[1] is not None:
            self._state[:] = self._saved[1]
        self._gradient_HD[self._touched_H] = 0
        self._touched_H[:] = False
        self.steps = 0

    def _lookups(self, rows_U: Ints) -> Lookups:
        """Put the rows of every part in one bag."""
        ends = np.cumsum([part.rows for part in self._layout.tables])
        offsets = np.concatenate([[0], np.searchsorted(rows_U, ends)])
        starts = np.repeat(ends - self._layout.rows_T, np.diff(offsets))
        return Lookups(torch.from_numpy(rows_U - starts), torch.from_numpy(offsets), len(ends))
