"""Rows to those who look them up, gradients back to those who own them.

Both directions are the same: blocks of rows for every other rank are encoded in one call, their
sizes are announced with the bytes, and what arrives is decoded in one call. What this rank asks of
itself never becomes bytes. Rows may come in two parts (``prefetched``). Everything is done in
``stages``, between which a rank need not wait. Shape legend: ``N`` ranks, ``M`` other ranks, ``T``
tables, ``R`` rows, ``D`` dimensions, ``C`` ids in all lists.
"""

from __future__ import annotations

from time import perf_counter
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from laconic.errors import CommError
from laconic.exchange.coder import Coder
from laconic.exchange.contributions import Contributions, HeldGradients, UpdateObserver
from laconic.exchange.exchange_plan import ExchangePlan
from laconic.exchange.ids import Routed
from laconic.exchange.ledger import Direction, Entry
from laconic.exchange.noise import RoundedContributions
from laconic.exchange.owner_sums import OwnSums, ReplicaSums
from laconic.exchange.prefetched import (
    ChangingRows,
    PrefetchedRows,
    bits_of,
    bytes_of_bits,
    count_blocks,
    unchanged,
    without,
)
from laconic.exchange.ranks.heads import Head, Heads
from laconic.exchange.ranks.stages import Stages
from laconic.exchange.ranks.transport import Buffers, Message, Transport
from laconic.exchange.scales import TableScales
from laconic.exchange.sent_blocks import SentBlocks, Turn
from laconic.exchange.sent_rows import Blocks, Observer, SentRows, seed_of
from laconic.exchange.tables.keys import stable_order
from laconic.exchange.tables.shards import Shards

__all__ = ["RowExchange"]

Ints = NDArray[np.int64]
Rows = NDArray[Any]
_SUMS = 1 << 19  # added to the seed of gradients, whose rounding that of sums shall not repeat


class RowExchange:
    """The shards of one rank, and the messages that carry their rows and gradients."""

    rounds_own = False  # whether what a rank sends itself is rounded too

    def __init__(
        self,
        shards: Shards,
        table_P: Ints,
        transport: Transport,
        before_update: UpdateObserver | None = None,
        *,
        scaled: bool = True,
    ) -> None:
        """``table_P``: table of which each part is. ``scaled``: bounds are shares of tables."""
        self.shards, self.layout, self.transport = shards, shards.layout, transport
        self._table_P, self._before_update = table_P, before_update
        self._observer: Observer | None = None
        self._dtype, self._dim = shards.weight_RD.dtype, shards.weight_RD.shape[1]
        self._others = np.arange(self.layout.ranks) != self.layout.rank
        self.scales = TableScales(len(self.layout.tables) if scaled else 0)
        self._coders: tuple[ExchangePlan, int, Coder, Coder] | None = None
        self._buffers = Buffers()
        self._changing = ChangingRows(len(shards.weight))
        self.held = HeldGradients()

    def observe(self, observer: Observer | None) -> None:
        """Let something see what rows and gradients become on their way; None: nobody."""
        self._observer = observer

    def prefetch(self, turn: Turn, current: Routed) -> Stages[PrefetchedRows | None]:
        """Exchange the rows of a coming batch that the ``current`` one does not change.

        Only exact tables can be prefetched; None if there is none. A lossy codec rounds a block as
        a whole, so two blocks would give other values than one.
        """
        service, answers_NT, others = turn.routed.service, turn.routed.request.answers_NT, self._others
        coder = self._coder(turn.plan)[0]
        may_T = coder.exact_T & ~self.layout.pooled_T
        if not may_T.any():
            return None
        start = perf_counter()
        sent_R = unchanged(service, may_T, others, self._changing.of(current.service))
        part = without(service.remote, ~sent_R)
        rows = self._rows("sent", part.rows)
        self.shards.gather(rows, part.index, part.offsets)
        sent_NT = np.zeros_like(service.answers_NT)
        sent_NT[others] = count_blocks(sent_R, service.answers_NT[others])

        coming_N = np.where(others, answers_NT.sum(axis=1), 0)
        mine, mine_N = bytes_of_bits(sent_R, np.where(others, service.answers_NT.sum(axis=1), 0))
        theirs_N = (coming_N + 7) // 8
        theirs = np.empty(int(theirs_N.sum()), np.uint8)
        sent, payload = self._encode(turn, coder, rows, sent_NT, start)
        self._show("forward", sent, rows, payload)
        self._send(sent, payload, Message.each(mine, mine_N), counts_known=False)
        yield
        heard = self.transport.hear()
        coming_MT = heard.counts_NK[others]
        if ((coming_MT < 0) | (coming_MT > answers_NT[others])).any():
            raise CommError(
                f"{self.transport.name}: a rank announced {coming_MT.max()} early rows at turn {turn.routed.turn}, "
                "more than it was asked for; the ranks run different versions"
            )
        out = self._rows("scattered", int(coming_MT.sum()))
        arrived = self._receive(sent, heard, out)
        self.transport.receive(theirs, theirs_N)
        waited, decoding = self.transport.take_time(), perf_counter()
        came_R = bits_of(theirs, coming_N)
        if (count_blocks(came_R, answers_NT[others]) != coming_MT).any():
            raise CommError(
                f"{self.transport.name}: early rows of turn {turn.routed.turn} are others than their bits say; "
                "the ranks run different versions"
            )
        coder.decode(arrived, heard.bytes_NK[others], coming_MT, out)
        received = self._empty(int(answers_NT.sum()))
        received.numpy()[: len(came_R)][came_R] = out
        came_NT = np.zeros_like(answers_NT)
        came_NT[others] = coming_MT
        if turn.ledger is not None:
            entry = sent.entry(waited, perf_counter() - decoding, more=int(mine_N.sum()))
            turn.ledger.accounts["forward"].add(entry, steps=0)
        return PrefetchedRows(received, sent_R, sent_NT, came_R, came_NT)

    def fetch(self, turn: Turn, prefetched: PrefetchedRows | None = None) -> Stages[torch.Tensor]:
        """Send the rows that others asked for, and return those that this rank asked for."""
        sent = self._send_rows(turn, prefetched)
        yield
        return self._receive_rows(sent)

    def update(self, turn: Turn, gradient_RD: torch.Tensor, *, hold: bool = False) -> Stages[int]:
        """Send gradients of the rows that were answered, and update those whose gradients come.

        ``hold``: what comes is kept until ``apply_held``. Returns the number of rows that changed.
        """
        sent = self._send_gradients(turn, gradient_RD)
        yield
        came = yield from self._receive_gradients(sent)
        yield from self._agree(turn)
        if hold:
            self.held.add(came)
            return 0
        return self._update(came)

    def apply_held(self) -> int:
        """Update rows by the sum of all held gradients; returns how many rows."""
        held = self.held.take()
        return 0 if held is None else self._update(held)

    def _send_rows(self, turn: Turn, prefetched: PrefetchedRows | None) -> SentBlocks:
        """Send the rows that were asked for, but for those that have left."""
        start, service = perf_counter(), turn.routed.service
        remote, sent_NT = service.remote, service.answers_NT
        if prefetched is not None:
            remote, sent_NT = without(remote, prefetched.sent_R), sent_NT - prefetched.sent_NT
        rows = self._rows("sent", remote.rows)
        self.shards.gather(rows, remote.index, remote.offsets)
        self._note("forward", turn, rows, sent_NT[self._others])
        sent, payload = self._encode(turn, self._coder(turn.plan)[0], rows, sent_NT, start)
        sent.prefetched = prefetched
        self._show("forward", sent, rows, payload)
        self._send(sent, payload)
        return sent

    def _receive_rows(self, sent: SentBlocks) -> torch.Tensor:
        routed, prefetched = sent.turn.routed, sent.prefetched
        own, coming_NT = routed.service.own, routed.request.answers_NT
        received = self._empty(int(coming_NT.sum())) if prefetched is None else prefetched.received
        rows = received.numpy()
        remote, own_rows = rows[: len(rows) - own.rows], rows[len(rows) - own.rows :]
        self.shards.gather(own_rows, own.index, own.offsets)
        if prefetched is None:
            self._take("forward", sent, coming_NT, remote)
            return received
        out = self._rows("scattered", len(remote) - int(prefetched.came_NT.sum()))
        self._take("forward", sent, coming_NT - prefetched.came_NT, out)
        remote[~prefetched.came_R] = out
        return received

    def _send_gradients(self, turn: Turn, gradient_RD: torch.Tensor) -> SentBlocks:
        start, gradient = perf_counter(), gradient_RD.numpy()
        request, coder = turn.routed.request, self._coder(turn.plan)[1]
        sent_NT = request.gradients_NT
        remote = len(gradient) - int(request.answers_NT[self.layout.rank].sum())
        rows = gradient[:remote] if request.sent_G is None else gradient[request.sent_G]
        own = gradient[remote:]
        if (self.layout.replicated_T & ~self.layout.summed_T & ~coder.exact_T).any():
            own = self._round_trip(turn, coder, own)
        self._note_gradients(turn, rows, sent_NT[self._others], gradient[remote:])
        sent, payload = self._encode(turn, coder, rows, sent_NT, start)
        sent.own = own
        self._show("backward", sent, rows, payload)
        self._send(sent, payload)
        return sent

    def _receive_gradients(self, sent: SentBlocks) -> Stages[Contributions]:
        """Receive what rows are to be updated by; the memory is used again by the next."""
        turn, own = sent.turn, sent.own
        assert own is not None, "_send_gradients comes first"
        service = turn.routed.service
        total = int(service.gradients_NT.sum())
        end = total - len(own)
        coming = self._rows("gradients", total) if end else own  # from nobody else: nothing is copied
        if end:
            coming[end:] = own
        self._take("backward", sent, service.gradients_NT, coming[:end])
        part_C, gradient_C = service.list_C % len(self.layout.tables), service.gradient_C
        rounded = self._rounded(sent, part_C, gradient_C >= end)
        came = Contributions(service.rows_C, turn.routed.order_C, coming, gradient_C, rounded)
        if not self.layout.summed_T.any():
            return came
        return (yield from self._sum_replicas(sent, came, part_C))

    def _sum_replicas(self, sent: SentBlocks, came: Contributions, part_C: Ints) -> Stages[Contributions]:
        """Send sums of what came for replicated rows; put those of all ranks in its place."""
        turn, start = sent.turn, perf_counter()
        own = OwnSums.of(came, part_C, turn.routed.service.id_C, self.layout)
        nothing = np.zeros((self.layout.ranks, 0), np.int64)
        head = Head(turn.routed.turn, turn.plan.digest, turn.routed.samples, nothing, nothing)
        seed = self._seed(turn.step) + _SUMS
        sums = yield from ReplicaSums.exchange(own, self.layout, sent.coder, self.transport, head, seed)
        if turn.ledger is not None:
            waited, others = self.transport.take_time(), self.layout.ranks - 1
            before_T = own.counts_P * others
            ids = Entry(turn.step, 8 * before_T, sums.id_bytes_P, 0, 0.0, 0.0, 0.0)
            turn.ledger.accounts["ids"].add(ids, steps=0)
            before_T = before_T * (self._dim * sent.coder.item_bytes)
            times = (0.0, waited, perf_counter() - start - waited)
            entry = Entry(turn.step, before_T, sums.sum_bytes_P, sums.announced, *times)
            turn.ledger.accounts["backward"].add(entry, steps=0)
        kept = np.flatnonzero(~self.layout.summed_T[part_C])
        rounded = came.rounded
        if rounded is not None:
            step_V = sent.coder.grid_step_T[sums.part_V] * np.sqrt(sums.roundings_V)
            rounded = rounded.replaced(kept, sums.part_V, step_V)
        rows_C = np.concatenate([came.rows_C[kept], sums.rows_V])
        return Contributions(
            rows_C,
            stable_order(rows_C),
            np.concatenate([came.gradients, sums.sums_VD]),
            np.concatenate([came.gradient_C[kept], len(came.gradients) + np.arange(len(sums.rows_V))]),
            rounded,
        )

    def _rounded(
        self, sent: SentBlocks, part_C: Ints, own_C: NDArray[np.bool_]
    ) -> RoundedContributions | None:
        """Return how gradients had been rounded, where the plan rounds; own ones have not been."""
        if not self.scales.needed(sent.turn.plan):
            return None
        exact_C = own_C & ~self.layout.replicated_T[part_C] & (not self.rounds_own)
        step_T = sent.coder.grid_step_T.astype(self.shards.weight.dtype)
        return RoundedContributions.of(part_C, step_T, exact_C, sent.turn.routed.global_samples)

    def _update(self, came: Contributions) -> int:
        self.shards.note(came.rows_C)
        if self._before_update is not None:
            self._before_update.note(came.rows_C, came.gradients, came.gradient_C)
        return self.shards.update(came)

    def _encode(
        self, turn: Turn, coder: Coder, rows: Rows, sent_NT: Ints, start: float
    ) -> tuple[SentBlocks, NDArray[np.uint8]]:
        """Encode blocks of ``sent_NT`` rows for the others; the next call overwrites the bytes."""
        others, counts_NT, bytes_NT = self._others, np.zeros_like(sent_NT), np.zeros_like(sent_NT)
        if self.layout.ranks == 1:
            return SentBlocks(turn, coder, counts_NT, bytes_NT, 0.0), np.empty(0, np.uint8)
        counts_NT[others] = sent_NT[others]
        payload, bytes_NT[others] = coder.encode(rows, sent_NT[others], self._seed(turn.step))
        return SentBlocks(turn, coder, counts_NT, bytes_NT, perf_counter() - start), payload

    def _send(
        self, sent: SentBlocks, payload: NDArray[np.uint8], *more: Message, counts_known: bool = True
    ) -> None:
        """Announce and send encoded blocks, and ``more`` messages.

        Ids say how many rows are to come, unless some have come before.
        """
        if self.layout.ranks == 1:
            return
        routed = sent.turn.routed
        numbers = routed.turn, sent.turn.plan.digest, routed.samples
        head = Head(*numbers, sent.counts_NT, sent.bytes_NT, counts_known)
        message = Message.each(payload, sent.bytes_NT.sum(axis=1))
        sent.head_bytes = self.transport.send(head, message, *more)

    def _take(self, direction: Direction, sent: SentBlocks, coming_NT: Ints, out: Rows) -> None:
        """Fill ``out`` with the blocks of the others."""
        waited = decoded = 0.0
        if self.layout.ranks > 1:
            coming_MT = coming_NT[self._others]
            heard = self.transport.hear(coming_NT)
            arrived = self._receive(sent, heard, out)
            waited, decoding = self.transport.take_time(), perf_counter()
            sent.coder.decode(arrived, heard.bytes_NK[self._others], coming_MT, out)
            decoded = perf_counter() - decoding
        if sent.turn.ledger is not None:
            sent.turn.ledger.record(direction, sent.entry(waited, decoded))

    def _receive(self, sent: SentBlocks, heard: Heads, out: Rows) -> NDArray[np.uint8]:
        """Return the bytes of announced blocks: those of ``out`` itself, where nothing is coded."""
        coming_N = heard.bytes_NK.sum(axis=1)
        total = int(coming_N.sum())
        exact = sent.coder.exact
        if exact and total != out.nbytes:
            raise CommError(
                f"{self.transport.name}: expected {out.nbytes} bytes at turn {sent.turn.routed.turn}, "
                f"got {total} announced"
            )
        arrived = (
            out.reshape(-1).view(np.uint8) if exact else self._buffers.reserve("arrived", total, np.uint8)
        )
        self.transport.receive(arrived, coming_N)
        return arrived

    def _show(self, direction: Direction, sent: SentBlocks, rows: Rows, payload: NDArray[np.uint8]) -> None:
        """Show what this rank sends to whoever observes it."""
        if self._observer is not None:
            who = (self.layout.rank, self.layout.ranks)
            blocks = Blocks(rows, sent.counts_NT[self._others], self._table_P, *who)
            bytes_MT = sent.bytes_NT[self._others]
            self._observer.add(SentRows(direction, blocks, sent.coder, payload, bytes_MT))

    def _round_trip(self, turn: Turn, coder: Coder, own: Rows) -> Rows:
        """Return gradients of this rank's replicas as other ranks decode them: all stay equal."""
        changed_T = self.layout.replicated_T & ~coder.exact_T
        answers_T = turn.routed.request.answers_NT[self.layout.rank]
        counts_1T = np.where(changed_T, answers_T, 0)[None]
        at = np.flatnonzero(np.repeat(changed_T, answers_T))
        rows = own[at]
        payload, sizes_1T = coder.encode(rows, counts_1T, self._seed(turn.step))
        coder.decode(payload, sizes_1T, counts_1T, rows)
        changed = own.copy()
        changed[at] = rows
        return changed

    def _note(self, direction: Direction, turn: Turn, rows: Rows, counts_MT: Ints) -> None:
        if turn.trains:
            self.scales.note(direction, turn.step, turn.plan, rows, counts_MT)

    def _note_gradients(self, turn: Turn, sent: Rows, counts_MT: Ints, own: Rows) -> None:
        """Note what is sent; of replicated tables this rank's gradients, whoever gets them.

        So bounds do not depend on how many ranks there are.
        """
        copied_T = self.layout.replicated_T
        if copied_T.any() and len(counts_MT) and self.scales.listens(turn.step, turn.plan):
            answers_T = turn.routed.request.answers_NT[self.layout.rank]
            copies = own[np.repeat(copied_T, answers_T)]
            self._note("backward", turn, copies, np.where(copied_T, answers_T, 0)[None])
            sent = sent[np.repeat(np.tile(~copied_T, len(counts_MT)), counts_MT.ravel())]
            counts_MT = np.where(copied_T, 0, counts_MT)
        self._note("backward", turn, sent, counts_MT)

    def _agree(self, turn: Turn) -> Stages[None]:
        """Let all ranks know what tables' bounds are shares of."""
        sent = yield from self.scales.agree(turn.step, turn.plan, self.shards.noise, self.transport)
        if turn.ledger is not None and sent:
            turn.ledger.accounts["backward"].add_sizes(sent, self.transport.take_time())

    def _coder(self, plan: ExchangePlan) -> tuple[Coder, Coder]:
        if self._coders is None or self._coders[0] is not plan or self._coders[1] != self.scales.agreements:
            forward, backward = (
                Coder(self.scales.codecs(plan, direction), self._dim, self._dtype)
                for direction in ("forward", "backward")
            )
            self._coders = (plan, self.scales.agreements, forward, backward)
        return self._coders[2:]

    def _seed(self, step: int) -> int:
        return seed_of(step, self.layout.rank, self.layout.ranks)

    def _rows(self, name: str, count: int) -> Rows:
        return self._buffers.reserve(name, (count, self._dim), self.shards.weight.dtype)

    def _empty(self, rows: int) -> torch.Tensor:
        return torch.empty(rows, self._dim, dtype=self._dtype)
