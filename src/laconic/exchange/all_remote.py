"""Ranks that send themselves what they ask of themselves, as if it came from another.

A few ranks of one process own a good part of what they look up; of hundreds, each owns nearly
nothing of it. So what compression does to many ranks is tried out on a few whose own rows and
gradients are encoded, counted and decoded too. Replicated tables are left as they are: nobody asks
another for their rows. Shape legend: ``T`` tables, ``R`` rows, ``D`` dimensions.
"""

from __future__ import annotations

from time import perf_counter
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from laconic.exchange.ids import IdExchange, MaybeLookups, Routed, encode_lists, lists_for
from laconic.exchange.ledger import Direction, Entry, Ledger
from laconic.exchange.prefetched import PrefetchedRows
from laconic.exchange.ranks.stages import Stages
from laconic.exchange.rows import RowExchange
from laconic.exchange.sent_blocks import Turn
from laconic.exchange.sent_rows import Blocks, SentRows

__all__ = ["AllRemoteIds", "AllRemoteRows"]


class AllRemoteIds(IdExchange):
    """Counts the ids that a rank sends itself."""

    def route(self, lookups: MaybeLookups, turn: int, coded: bool, ledger: Ledger | None) -> Stages[Routed]:
        """Send ids, and count this rank's own as if they were sent."""
        routed = yield from super().route(lookups, turn, coded, ledger)
        if ledger is not None:
            start, lists, rank = perf_counter(), routed.request.lists, self._layout.rank
            ids, lengths = lists_for(lists, rank)
            counts_2T = np.stack([lists.counts_NT[rank], lists.length_counts_NT[rank]])
            _, bytes_2T = encode_lists(np.concatenate([ids, lengths]), counts_2T.ravel(), coded)
            before_T, after_T = (
                np.where(self._layout.replicated_T, 0, sent.reshape(2, -1).sum(axis=0))
                for sent in (8 * counts_2T, bytes_2T)
            )
            ledger.accounts["ids"].add(
                Entry(turn, before_T, after_T, 0, perf_counter() - start, 0.0, 0.0), steps=0
            )
        return routed


class AllRemoteRows(RowExchange):
    """Encodes and decodes the rows and gradients that a rank sends itself."""

    rounds_own = True

    def fetch(self, turn: Turn, prefetched: PrefetchedRows | None = None) -> Stages[torch.Tensor]:
        """Fetch rows; this rank's own are what another would decode."""
        received = yield from super().fetch(turn, prefetched)
        self._travel("forward", turn, self._own(turn, received))
        return received

    def update(self, turn: Turn, gradient_RD: torch.Tensor, *, hold: bool = False) -> Stages[int]:
        """Update rows; gradients of this rank's own are what another would decode."""
        gradient_RD = gradient_RD.clone()
        self._travel("backward", turn, self._own(turn, gradient_RD))
        return (yield from super().update(turn, gradient_RD, hold=hold))

    def _own(self, turn: Turn, rows_RD: torch.Tensor) -> NDArray[Any]:
        """Rows that this rank asks of itself, which are the last."""
        own = int(turn.routed.request.answers_NT[self.layout.rank].sum())
        return rows_RD.numpy()[len(rows_RD) - own :]

    def _travel(self, direction: Direction, turn: Turn, own_RD: NDArray[Any]) -> None:
        """Replace rows by what arrives, but for those of replicated tables."""
        answers_T = turn.routed.request.answers_NT[self.layout.rank]
        sent_T = ~self.layout.replicated_T
        at = np.flatnonzero(np.repeat(sent_T, answers_T))
        counts_1T = np.where(sent_T, answers_T, 0)[None]
        coder = self._coder(turn.plan)[direction == "backward"]
        blocks = Blocks(own_RD[at], counts_1T, self._table_P, self.layout.rank, self.layout.ranks)
        self._note(direction, turn, blocks.rows_RD, counts_1T)
        start = perf_counter()
        payload, bytes_1T = coder.encode(blocks.rows_RD, counts_1T, self._seed(turn.step))
        encoded = perf_counter()
        sent = SentRows(direction, blocks, coder, payload, bytes_1T)
        if self._observer is not None:
            self._observer.add(sent)
        decoding = perf_counter()
        own_RD[at] = sent.arrived_RD()
        if turn.ledger is not None:
            before_T = counts_1T[0] * (self._dim * coder.item_bytes)
            times = (encoded - start, 0.0, perf_counter() - decoding)
            turn.ledger.accounts[direction].add(Entry(turn.step, before_T, bytes_1T[0], 0, *times), steps=0)
