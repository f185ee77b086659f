"""Copies of hot rows that are made equal every few steps; in between each rank trains its own.

In between, a rank updates its copies by its own gradients, so that it sees what it learns, and
keeps the sums of these gradients. To synchronize, copies go back to where they were equal. Then one
update by the gradients of all ranks and steps, summed in rank order, takes them on. So nothing is
lost, and what each rank did alone is corrected. With plain SGD the result is that of all the
updates; an adaptive optimizer sees one large batch instead of several.

The exchange is that of a replicated table: ids of the rows that ranks have touched, then their
gradients, coded as the plan says. Shape legend: ``H`` hot rows of all tables, which are neighbors
in the rank's matrix, ``D`` dimensions, ``U`` rows touched by this rank since copies were equal,
``C`` contributions of a step.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from laconic.exchange.exchange_plan import ExchangePlan
from laconic.exchange.ids import IdExchange
from laconic.exchange.ledger import Ledger
from laconic.exchange.ranks.stages import Stages
from laconic.exchange.ranks.transport import Transport
from laconic.exchange.rows import RowExchange
from laconic.exchange.sent_blocks import Turn
from laconic.exchange.tables.copies import HotRows
from laconic.exchange.tables.layout import Layout
from laconic.exchange.tables.shards import Shards
from laconic.lookups import Lookups

__all__ = ["StaleCopies"]

Ints = NDArray[np.int64]
Rows = NDArray[Any]


class StaleCopies:
    """The copies of one rank; used by the thread of its rows."""

    def __init__(self, hot: HotRows, all_shards: Shards, transport: Transport, digest: int) -> None:
        """``all_shards``: of all parts, of which copies are the last."""
        layout, self._tables = all_shards.layout, len(hot.tables)
        copied = hot.parts[self._tables :]
        self._first = int(layout.base_T[self._tables])
        rows = slice(self._first, self._first + sum(part.rows for part in copied))
        state_H = None if all_shards.state_R is None else all_shards.state_R[rows]
        self._layout = Layout(copied, layout.ranks, layout.rank)
        self.shards = Shards(self._layout, all_shards.weight_RD[rows], state_H, all_shards.optimizer)
        no_more = HotRows(copied)
        self._ids = IdExchange(self._layout, no_more, transport, digest)
        self._exchange = RowExchange(self.shards, no_more.table_P, transport, scaled=False)
        self._ledger = Ledger(tuple(part.name for part in copied))
        weight = self.shards.weight
        self._touched_H = np.zeros(len(weight), bool)
        self._gradient_HD = np.zeros_like(weight)
        self._equal = self._empty_like_copies()
        self._saved: list[Rows] = []
        self.steps = 0
        """Updates since copies were equal."""

    def note(self, rows_C: Ints, gradients: Rows, gradient_C: Ints) -> None:
        """Keep the gradients of this rank's copies, which are about to be updated by them.

        Each row has one gradient at most.
        """
        self.steps += 1
        hot = np.flatnonzero((rows_C >= self._first) & (rows_C < self._first + len(self._touched_H)))
        rows = rows_C[hot] - self._first
        fresh = rows[~self._touched_H[rows]]
        for equal, copies in zip(self._equal, self._matrices, strict=True):
            equal[fresh] = copies[fresh]
        self._touched_H[rows] = True
        self._gradient_HD[rows] += gradients[gradient_C[hot]]

    def synchronize(self, number: int, plan: ExchangePlan, step: int, ledger: Ledger) -> Stages[None]:
        """Make copies equal on all ranks, at a turn of this number, by the plan of all parts."""
        rows_U = np.flatnonzero(self._touched_H)
        for equal, copies in zip(self._equal, self._matrices, strict=True):
            copies[rows_U] = equal[rows_U]
        routed = yield from self._ids.route(self._lookups(rows_U), number, plan.coded_ids, self._ledger)
        copied = replace(plan, tables=plan.tables[self._tables :])
        turn, gradient_UD = Turn(routed, copied, step, self._ledger), self._gradient_HD[rows_U]
        yield from self._exchange.update(turn, torch.from_numpy(gradient_UD))
        self._forget(rows_U)
        ledger.take_over(self._ledger, self._tables)

    def save(self) -> None:
        """Remember copies that are equal, for ``go_back``."""
        self._saved = [copies.copy() for copies in self._matrices]

    def go_back(self) -> None:
        """Make copies what they were, and forget what was learnt since."""
        assert self._saved, "save comes first"
        for saved, copies in zip(self._saved, self._matrices, strict=True):
            copies[:] = saved
        self.forget()

    def forget(self) -> None:
        """Forget what was learnt since copies were equal, because they are something else now."""
        self._forget(np.flatnonzero(self._touched_H))

    @property
    def _matrices(self) -> list[Rows]:
        state = self.shards.state
        return [self.shards.weight] if state is None else [self.shards.weight, state]

    def _empty_like_copies(self) -> list[Rows]:
        return [np.zeros_like(copies) for copies in self._matrices]

    def _forget(self, rows_U: Ints) -> None:
        self._gradient_HD[rows_U] = 0
        self._touched_H[rows_U] = False
        self.steps = 0

    def _lookups(self, rows_U: Ints) -> Lookups:
        """Put the rows of every part in one bag."""
        ends = np.cumsum([part.rows for part in self._layout.tables])
        offsets = np.concatenate([[0], np.searchsorted(rows_U, ends)])
        starts = np.repeat(ends - self._layout.rows_T, np.diff(offsets))
        return Lookups(torch.from_numpy(rows_U - starts), torch.from_numpy(offsets), len(ends))
