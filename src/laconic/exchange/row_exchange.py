"""Rows to those who look them up, gradients back to those who own them.

Both directions are the same: blocks of rows for every other rank are encoded in one call, their
sizes announced, the bytes moved, and what arrives is decoded in one call. What this rank asks of
itself never becomes bytes. Rows may come in two parts (``look_ahead``). Shape legend: ``N`` ranks, ``T`` tables, ``R`` rows, ``D`` dimensions.
"""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from laconic import kernels
from laconic.cost.link import message_bytes
from laconic.errors import CommError
from laconic.exchange.coder import Coder, Room
from laconic.exchange.exchange_plan import ExchangePlan
from laconic.exchange.id_exchange import Routed
from laconic.exchange.ledger import Direction, Entry, Ledger
from laconic.exchange.look_ahead import (
    Early,
    bits_of,
    bytes_of_bits,
    count_blocks,
    unchanged,
    without,
)
from laconic.exchange.owned_sums import OwnedSums
from laconic.exchange.request import block_starts
from laconic.exchange.service import Service
from laconic.exchange.tables.hot_rows import HotRows
from laconic.exchange.tables.journal import Journal
from laconic.exchange.tables.layout import Layout
from laconic.exchange.tables.optimizer import RowOptimizer
from laconic.exchange.update_error import Watch
from laconic.exchange.wire import Sizes, Wire

__all__ = ["RowExchange"]

Ints = NDArray[np.int64]
Rows = NDArray[Any]


class RowExchange:
    """The shards of one rank, and the messages that carry their rows and gradients."""

    def __init__(
        self,
        layout: Layout,
        hot: HotRows,
        weight_RD: torch.Tensor,
        state_R: torch.Tensor | None,
        optimizer: RowOptimizer,
        wire: Wire,
    ) -> None:
        self.layout, self.optimizer, self.wire = layout, optimizer, wire
        self._weight = weight_RD.numpy()
        self._state = None if state_R is None else state_R.numpy()
        self._dtype, self._dim = weight_RD.dtype, weight_RD.shape[1]
        self._others = np.arange(layout.ranks) != layout.rank
        self.journal: Journal | None = None
        self.watch: Watch | None = None
        """Sees what gradients become on their way, if anybody wants to know."""
        self.before_update: Callable[[Ints, Rows, Ints], None] | None = None
        """Sees rows, gradients, and the gradient of each row before they are used."""
        self._table_P = hot.table_P
        self._coders: tuple[ExchangePlan, Coder, Coder] | None = None
        self._sent, self._arrived, self._gradients, self._scattered = Room(), Room(), Room(), Room()
        self._changing, self._marked = np.zeros(0, np.bool_), np.empty(0, np.int64)

    def forward_early(
        self, routed: Routed, current: Routed, plan: ExchangePlan, step: int, ledger: Ledger
    ) -> Early | None:
        """Send the rows of a coming batch that the ``current`` one does not change; None if no table's may.

        Only what arrives as it was sent: what is rounded would be rounded in other company.
        """
        service, answers_NT, others = routed.service, routed.request.answers_NT, self._others
        coder = self._coder(plan)[0]
        may_T = coder.exact_T & ~self.layout.pooled_T
        if not may_T.any():
            return None
        start = perf_counter()
        sent_R = unchanged(service, may_T, others, self._rows_that_change(current))
        part = without(service.remote, ~sent_R)
        sent = self._rows(self._sent, part.rows)
        kernels.active().sum_bags(sent, self._weight, part.index, part.offsets)
        sent_NT = np.zeros_like(service.answers_NT)
        sent_NT[others] = count_blocks(sent_R, service.answers_NT[others])

        asked_N = np.where(others, service.answers_NT.sum(axis=1), 0)
        coming_N = np.where(others, answers_NT.sum(axis=1), 0)
        mine, mine_N = bytes_of_bits(sent_R, asked_N)
        theirs_N = (coming_N + 7) // 8
        theirs = np.empty(int(theirs_N.sum()), np.uint8)
        heard, entry = self._send(coder, routed, plan, step, sent, sent_NT, start, (mine, mine_N))
        coming_MT = heard.counts_NK[others]
        if ((coming_MT < 0) | (coming_MT > answers_NT[others])).any():
            raise CommError(
                f"{self.wire.name}: a rank announced {coming_MT.max()} early rows at turn {routed.turn}, more than it "
                "was asked for; the ranks run different versions"
            )
        out = self._rows(self._scattered, int(coming_MT.sum()))
        arrived = self._receive(coder, heard, out, routed.turn)
        self.wire.receive(theirs, theirs_N)
        waited, decoding = self.wire.take_time(), perf_counter()
        came_R = bits_of(theirs, coming_N)
        if (count_blocks(came_R, answers_NT[others]) != coming_MT).any():
            raise CommError(
                f"{self.wire.name}: early rows of turn {routed.turn} are others than their bits say; "
                "the ranks run different versions"
            )
        coder.decode(arrived, heard.bytes_NK[others], coming_MT, out)
        received = torch.empty(int(answers_NT.sum()), self._dim, dtype=self._dtype)
        received.numpy()[: len(came_R)][came_R] = out
        came_NT = np.zeros_like(answers_NT)
        came_NT[others] = coming_MT
        ledger.accounts["forward"].add(
            entry(waited, perf_counter() - decoding, sizes=int(mine_N.sum())), steps=0
        )
        return Early(received, sent_R, sent_NT, came_R, came_NT)

    def forward(
        self,
        routed: Routed,
        plan: ExchangePlan,
        step: int,
        ledger: Ledger | None,
        early: Early | None = None,
    ) -> torch.Tensor:
        """Send the rows that were asked for, but for those that have left; return those that this rank asked for."""
        service, answers_NT = routed.service, routed.request.answers_NT
        start = perf_counter()
        active = kernels.active()
        remote, sent_NT, coming_NT = service.remote, service.answers_NT, answers_NT
        if early is None:
            received = torch.empty(int(answers_NT.sum()), self._dim, dtype=self._dtype)
        else:
            received, remote = early.received, without(remote, early.sent_R)
            sent_NT, coming_NT = sent_NT - early.sent_NT, coming_NT - early.came_NT
        sent = self._rows(self._sent, remote.rows)
        active.sum_bags(sent, self._weight, remote.index, remote.offsets)
        rows = received.numpy()
        own = len(rows) - service.own.rows
        active.sum_bags(rows[own:], self._weight, service.own.index, service.own.offsets)
        coder = self._coder(plan)[0]
        out = rows[:own]
        if early is not None:
            out = self._rows(self._scattered, own - int(early.came_NT.sum()))
        self._move("forward", coder, routed, plan, step, sent, sent_NT, coming_NT, out, start, ledger)
        if early is not None:
            rows[:own][~early.came_R] = out
        return received

    def backward(
        self, routed: Routed, plan: ExchangePlan, step: int, ledger: Ledger, gradient_RD: torch.Tensor
    ) -> int:
        """Send the gradients of the rows that were answered, and update the rows whose gradients come.

        Returns the number of distinct rows that were updated.
        """
        request, service, rank = routed.request, routed.service, self.layout.rank
        start = perf_counter()
        gradient = gradient_RD.numpy()
        own = int(request.answers_NT[rank].sum())
        coder = self._coder(plan)[1]
        owned = self._owned(service, coder)
        sent_NT, coming_NT, gradient_C = request.gradients_NT, service.gradients_NT, service.gradient_C
        if owned is not None:
            sent_NT = np.where(owned.tables_T, 0, sent_NT)
            coming_NT = np.where(owned.tables_T & self._others[:, None], 0, coming_NT)
            moved_NT = block_starts(coming_NT, rank) - block_starts(service.gradients_NT, rank)
            gradient_C = gradient_C + moved_NT.ravel()[service.list_C]
        sent = gradient[: len(gradient) - own]
        if self.layout.replicated_T.any():
            sent = gradient[self._replicated_index(request.answers_NT, sent_NT)]
        sums = 0 if owned is None else len(owned.rows_V)
        coming = self._rows(self._gradients, int(coming_NT.sum()) + sums)
        end = len(coming) - sums
        remote = end - own
        coming[remote:end] = gradient[len(gradient) - own :]
        if (self.layout.replicated_T & ~coder.exact_T).any():
            self._round_trip_own(coder, routed, step, coming[remote:end])
        out = coming[:remote]
        self._move("backward", coder, routed, plan, step, sent, sent_NT, coming_NT, out, start, ledger)
        rows_C, order_C = service.rows_C, routed.order_C
        if self.journal is not None:
            self.journal.note(rows_C)
        if self.before_update is not None:
            self.before_update(rows_C, coming, gradient_C)
        if owned is not None:
            self._sum_owned(owned, routed, plan, step, ledger, coming, gradient_C)
            kept = np.flatnonzero(~owned.tables_T[service.list_C % len(owned.tables_T)])
            rows_C = np.concatenate([rows_C[kept], owned.rows_V])
            gradient_C = np.concatenate([gradient_C[kept], np.arange(end, len(coming))])
            order_C = np.argsort(rows_C, kind="stable")
        optimizer = self.optimizer
        return kernels.active().update_rows(
            self._weight,
            self._state,
            rows_C,
            order_C,
            coming,
            gradient_C,
            optimizer.code,
            optimizer.rate,
            optimizer.epsilon,
        )

    def _rows_that_change(self, current: Routed) -> NDArray[np.bool_]:
        """Mark rows of this rank's matrix that a batch updates; the array is used again."""
        if not len(self._changing):
            self._changing = np.zeros(len(self._weight), np.bool_)
        self._changing[self._marked] = False
        self._marked = current.service.rows_C
        self._changing[self._marked] = True
        return self._changing

    def _owned(self, service: Service, coder: Coder) -> OwnedSums | None:
        """Find replicated tables whose gradients owners sum; none while somebody watches all that is sent."""
        if self.watch is not None:
            return None
        may_T = self.layout.replicated_T & coder.exact_T
        return OwnedSums.choose(service.list_C, service.rows_C, may_T, self.layout.ranks)

    def _sum_owned(
        self,
        owned: OwnedSums,
        routed: Routed,
        plan: ExchangePlan,
        step: int,
        ledger: Ledger,
        coming: Rows,
        gradient_C: Ints,
    ) -> None:
        """Fill the last rows of ``coming`` with the sums of all ranks' gradients of replicated rows."""
        start = perf_counter()
        rows_KD = np.empty((len(owned.at_K), self._dim), coming.dtype)
        mine = owned.rank_K == self.layout.rank
        rows_KD[mine] = coming[gradient_C[owned.at_K[mine]]]
        out_VD = coming[len(coming) - len(owned.rows_V) :]
        owned.exchange(self.wire, rows_KD, out_VD, routed.turn, plan.digest)
        waited = self.wire.take_time()
        sent_T = owned.sent_rows_T(self.layout.rank) * (self._dim * coming.itemsize)
        sizes = message_bytes(1, self.layout.ranks)
        spent = perf_counter() - start - waited
        ledger.accounts["backward"].add(Entry(step, sent_T, sent_T, sizes, 0.0, waited, spent), steps=0)

    def _move(
        self,
        direction: Direction,
        coder: Coder,
        routed: Routed,
        plan: ExchangePlan,
        step: int,
        sent: Rows,
        sent_NT: Ints,
        coming_NT: Ints,
        out: Rows,
        start: float,
        ledger: Ledger | None,
    ) -> None:
        """Send blocks of ``sent_NT`` rows to the others, and fill ``out`` with theirs."""
        others = self._others
        coming_MT = coming_NT[others]
        heard, entry = self._send(
            coder, routed, plan, step, sent, sent_NT, start, watched=direction == "backward"
        )
        self._check_counts(heard.counts_NK[others], coming_MT, routed.turn)
        arrived = self._receive(coder, heard, out, routed.turn)
        waited, decoding = self.wire.take_time(), perf_counter()
        coder.decode(arrived, heard.bytes_NK[others], coming_MT, out)
        if ledger is not None:
            ledger.record(direction, entry(waited, perf_counter() - decoding))

    def _send(
        self,
        coder: Coder,
        routed: Routed,
        plan: ExchangePlan,
        step: int,
        sent: Rows,
        sent_NT: Ints,
        start: float,
        *more: tuple[Rows, Ints],
        watched: bool = False,
    ) -> tuple[Sizes, Callable[..., Entry]]:
        """Encode and announce blocks, and ``more`` messages; returns what the others announce, and what makes the ledger's entry."""
        others = self._others
        sent_MT = sent_NT[others]
        payload, sizes_MT = coder.encode(sent, sent_MT, self._seed(step))
        encoded = perf_counter()
        if watched and self.watch is not None:
            self._watch(self.watch, coder, sent, sent_MT, payload, sizes_MT)
        counts_NT, bytes_NT = np.zeros_like(sent_NT), np.zeros_like(sent_NT)
        counts_NT[others], bytes_NT[others] = sent_MT, sizes_MT
        message = (payload, bytes_NT.sum(axis=1))
        heard = self.wire.announce(
            routed.turn, plan.digest, routed.request.samples, counts_NT, bytes_NT, message, *more
        )

        def entry(waited: float, decode_s: float, sizes: int = 0) -> Entry:
            sizes += message_bytes(len(self.layout.tables), self.layout.ranks)
            before_T = counts_NT.sum(axis=0) * (self._dim * coder.item_bytes)
            return Entry(step, before_T, bytes_NT.sum(axis=0), sizes, encoded - start, waited, decode_s)

        return heard, entry

    def _receive(self, coder: Coder, heard: Sizes, out: Rows, turn: int) -> NDArray[np.uint8]:
        """Return the bytes of announced blocks: those of ``out`` itself, where nothing is coded."""
        coming_N = heard.bytes_NK.sum(axis=1)
        total = int(coming_N.sum())
        if coder.exact and total != out.nbytes:
            raise CommError(
                f"{self.wire.name}: expected {out.nbytes} bytes at turn {turn}, got {total} announced"
            )
        arrived: NDArray[np.uint8] = (
            out.reshape(-1).view(np.uint8) if coder.exact else self._arrived.take(total)
        )
        self.wire.receive(arrived, coming_N)
        return arrived

    def _watch(
        self, watch: Watch, coder: Coder, sent: Rows, sent_MT: Ints, payload: Rows, sizes_MT: Ints
    ) -> None:
        """Decode what this rank sends, as the owners will."""
        applied = sent.copy()
        coder.decode(payload, sizes_MT, sent_MT, applied)
        table_R = np.repeat(np.tile(self._table_P, len(sent_MT)), sent_MT.ravel())
        watch.add(table_R, sent, applied)

    def _check_counts(self, heard_MT: Ints, expected_MT: Ints, turn: int) -> None:
        if (heard_MT == expected_MT).all():
            return
        other, t = np.argwhere(heard_MT != expected_MT)[0]
        rank = int(np.flatnonzero(self._others)[other])
        raise CommError(
            f"{self.wire.name}: rank {rank} announced {heard_MT[other, t]} rows of table "
            f"{self.layout.tables[t].name!r} at turn {turn}, expected {expected_MT[other, t]}; the peer is out of step"
        )

    def _round_trip_own(self, coder: Coder, routed: Routed, step: int, own: Rows) -> None:
        """Give this rank's replicas the gradients that the other ranks decode, so that all stay equal."""
        changed_T = self.layout.replicated_T & ~coder.exact_T
        answers_T = routed.request.answers_NT[self.layout.rank]
        counts_1T = np.where(changed_T, answers_T, 0)[None]
        at = np.flatnonzero(np.repeat(changed_T, answers_T))
        rows = own[at]
        payload, sizes_1T = coder.encode(rows, counts_1T, self._seed(step))
        coder.decode(payload, sizes_1T, counts_1T, rows)
        own[at] = rows

    def _replicated_index(self, answers_NT: Ints, sent_NT: Ints) -> Ints:
        """Rows of the gradient in the order in which they are sent: those of replicas go to everyone."""
        rank = self.layout.rank
        starts_NT = block_starts(answers_NT, rank)
        starts_NT = np.where(self.layout.replicated_T, starts_NT[rank], starts_NT)[self._others].ravel()
        counts = sent_NT[self._others].ravel()
        within = np.arange(int(counts.sum())) - np.repeat(np.cumsum(counts) - counts, counts)
        index: Ints = np.repeat(starts_NT, counts) + within
        return index

    def _coder(self, plan: ExchangePlan) -> tuple[Coder, Coder]:
        if self._coders is None or self._coders[0] is not plan:
            forward = Coder([codecs.forward for codecs in plan.tables], self._dim, self._dtype)
            backward = Coder([codecs.backward for codecs in plan.tables], self._dim, self._dtype)
            self._coders = (plan, forward, backward)
        return self._coders[1:]

    def _seed(self, step: int) -> int:
        return (step * self.layout.ranks + self.layout.rank) << 20

    def _rows(self, room: Room, count: int) -> Rows:
        data = room.take(count * self._dim * self._dtype.itemsize)
        return data.view(self._weight.dtype).reshape(count, self._dim)
