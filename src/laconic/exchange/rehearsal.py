"""The exchange of several ranks in one process: the same blocks, the same bytes, no network.

One matrix holds all rows. A batch is divided among ranks as the data layer divides it; what one rank would
ask another for is encoded and decoded as it would be between them, in one native call for all ranks, and the
rest is only looked up. So a plan can be tried out before a cluster spends time on it.

Answers lie in one matrix in this order: rows that travel, by requester, owner and table; then those of
replicated tables and hot rows, whose gradients travel to everybody; then those that ranks ask of themselves. A hot row is
in the matrix once: its copies are equal. Shape legend: ``N`` ranks, ``T`` tables, or parts of them where some rows are hot, ``L`` lookups, ``R`` answered rows, ``D`` dimensions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from laconic import kernels
from laconic.cost.link import message_bytes
from laconic.errors import ConfigError
from laconic.exchange.coder import Coder
from laconic.exchange.errors_seen import Observer
from laconic.exchange.exchange_plan import ExchangePlan
from laconic.exchange.ledger import Direction, Entry, Ledger
from laconic.exchange.owner_sums import OwnerSums
from laconic.exchange.routing import Bags, bags_of, checked_lookups
from laconic.exchange.tables.copies import HotRows
from laconic.exchange.tables.keys import RowKey
from laconic.exchange.tables.layout import Layout
from laconic.exchange.tables.optimizer import RowOptimizer
from laconic.exchange.tables.shards import Journal
from laconic.exchange.tables.table import Table
from laconic.lookups import Lookups

__all__ = ["Rehearsal", "RehearsedBatch"]

Ints = NDArray[np.int64]
Rows = NDArray[Any]
_TRAVELS, _REPLICATED, _STAYS = 0, 1, 2


@dataclass(frozen=True, slots=True)
class RehearsedBatch:
    """A batch as all ranks route it."""

    samples: int
    bags: Bags
    rows_R: Ints
    """Row of the matrix that each answer is."""
    by_requester_R: Ints
    """Sorts answers by requester: the order in which gradients are summed."""
    order_R: Ints
    """Sorts those by row."""
    travels_NNT: Ints
    """Rows that each requester gets from each owner, of each table."""
    replicated_NT: Ints
    """Rows of replicated tables that each requester looks up."""
    table_P: Ints
    """Table of which each part is."""

    @property
    def global_samples(self) -> int:
        """Samples of all ranks."""
        return self.samples

    @property
    def sent_gradients_MT(self) -> Ints:
        """Rows of each block of gradients: those of requesters and owners, then those of replicated tables."""
        return np.concatenate([self.travels_NNT.reshape(-1, self.travels_NNT.shape[2]), self.replicated_NT])

    @property
    def table_of_sent(self) -> Ints:
        """Table of every row whose gradient travels; those that travel forward come first."""
        counts_MT = self.sent_gradients_MT
        return np.repeat(np.tile(self.table_P, len(counts_MT)), counts_MT.ravel())

    @property
    def travelling(self) -> int:
        """Rows that travel forward; they come first."""
        return int(self.travels_NNT.sum())


class Rehearsal:
    """All ranks' tables, and what they send each other."""

    def __init__(
        self,
        tables: tuple[Table, ...],
        ranks: int,
        dim: int,
        optimizer: RowOptimizer,
        hot: Mapping[str, Any] | None = None,
    ) -> None:
        self.hot = HotRows(tables, hot)
        self.layout = Layout(self.hot.parts, ranks, 0)
        split = [t.name for t in tables if t.send == "pooled" and t.sharding == "row"]
        if split and ranks > 1:
            raise ConfigError(
                f"rehearsal: table {split[0]!r} is pooled and split by rows, which is not rehearsed; "
                "choose sharding = 'table', or send = 'rows'"
            )
        # one rank that has everything, asked for rows: where things are in the matrix, and how bags are made
        self.whole = Layout(
            tuple(replace(t, sharding="table", send="rows", owner=None, cold=False) for t in tables), 1, 0
        )
        self.dim, self.optimizer = dim, optimizer
        self.weight_RD = torch.empty(self.whole.local_rows, dim)
        self.state_R = torch.zeros(self.whole.local_rows) if optimizer.has_state else None
        self.journal: Journal | None = None
        self.watch: Observer | None = None
        self._coders: tuple[ExchangePlan, Coder, Coder] | None = None

    def route(self, lookups: Lookups, *, coded: bool, ledger: Ledger | None, step: int = 0) -> RehearsedBatch:
        """Divide a batch among the ranks and find who asks whom for what."""
        start = perf_counter()
        layout, ranks, samples = self.layout, self.layout.ranks, lookups.samples
        # backward reads the offsets; a loader may reuse their memory before
        ids_L, offsets = checked_lookups(lookups.copy(), self.whole.tables)
        lengths = np.diff(offsets)
        tables, pooled_T = len(layout.tables), layout.pooled_T[: lookups.tables]
        cell_L = np.repeat(np.arange(len(lengths)), lengths)
        table_L, sample_L = np.divmod(cell_L, max(samples, 1))
        if pooled_T.any() and (lengths.reshape(len(pooled_T), samples)[pooled_T] != 1).any():
            raise ConfigError(
                "rehearsal: pooled tables are rehearsed with one id in every bag; use send = 'rows'"
            )
        bounds = np.arange(1, ranks + 1) * samples // ranks
        requester_L = np.searchsorted(bounds, sample_L, side="right")
        part_L, row_L = self.hot.route(table_L, ids_L)
        owner_L, _ = layout.locate(part_L, row_L)
        replicated_L = layout.replicated_T[part_L]
        owner_L = np.where(replicated_L, requester_L, owner_L)
        kind_L = np.where(owner_L != requester_L, _TRAVELS, np.where(replicated_L, _REPLICATED, _STAYS))
        block_L = ((kind_L * ranks + requester_L) * ranks + owner_L) * tables + part_L
        within_L = np.where(layout.pooled_T[part_L], sample_L, row_L)
        key_R, first_R, answer_L = np.unique(
            RowKey.pack(block_L, within_L), return_index=True, return_inverse=True
        )
        block_R = RowKey.table(key_R)
        counts = np.bincount(block_R, minlength=3 * ranks * ranks * tables).reshape(3, ranks, ranks, tables)
        rows_R = self.whole.base_T[table_L[first_R]] + ids_L[first_R]
        by_requester_R = np.argsort(block_R // (ranks * tables) % ranks, kind="stable")
        batch = RehearsedBatch(
            samples,
            bags_of(
                self.whole, self.whole.tables, samples, offsets, answer_L, np.zeros((1, tables), np.int64)
            ),
            rows_R,
            by_requester_R,
            np.argsort(rows_R[by_requester_R], kind="stable"),
            counts[_TRAVELS],
            counts[_REPLICATED].sum(axis=1),
            self.hot.table_P,
        )
        if ledger is not None:
            self._record_ids(batch, row_L[first_R], coded, ledger, step, start)
        return batch

    def forward(
        self, batch: RehearsedBatch, plan: ExchangePlan, step: int, ledger: Ledger | None
    ) -> torch.Tensor:
        """Return the answers as their requesters decode them."""
        received = torch.empty(len(batch.rows_R), self.dim)
        rows = received.numpy()
        kernels.active().sum_bags(rows, self.weight_RD.numpy(), batch.rows_R, None)
        coder = self._coder(plan)[0]
        counts_MT = batch.travels_NNT.reshape(-1, batch.travels_NNT.shape[2])
        ranks = self.layout.ranks
        seeds_M = self._seeds(step, np.tile(np.arange(ranks), ranks))
        sent_T, times = self._round_trip(coder, rows[: batch.travelling], counts_MT, seeds_M)
        if ledger is not None:
            self._record("forward", ledger, step, coder, counts_MT.sum(axis=0), sent_T, times)
        return received

    def backward(
        self, batch: RehearsedBatch, plan: ExchangePlan, step: int, ledger: Ledger, gradient_RD: torch.Tensor
    ) -> int:
        """Update rows by the gradients as their owners decode them; returns how many rows were updated."""
        self.send_gradients(batch, plan, step, ledger, gradient_RD)
        if self.journal is not None:
            self.journal.note(batch.rows_R)
        optimizer = self.optimizer
        return kernels.active().update_rows(
            self.weight_RD.numpy(),
            None if self.state_R is None else self.state_R.numpy(),
            batch.rows_R[batch.by_requester_R],
            batch.order_R,
            gradient_RD.numpy(),
            batch.by_requester_R,
            optimizer.code,
            optimizer.lr,
            optimizer.eps,
        )

    def send_gradients(
        self,
        batch: RehearsedBatch,
        plan: ExchangePlan,
        step: int,
        ledger: Ledger | None,
        gradient_RD: torch.Tensor,
    ) -> None:
        """Replace gradients by what their owners decode."""
        # those of one rank too: its replicas get what others would decode, though there are none
        ranks = self.layout.ranks
        coder = self._coder(plan)[1]
        counts_MT = batch.sent_gradients_MT
        senders_M = np.concatenate([np.repeat(np.arange(ranks), ranks), np.arange(ranks)])
        copies_M = np.repeat([1, ranks - 1], [ranks * ranks, ranks])
        sent = gradient_RD.numpy()[: int(counts_MT.sum())]
        exact = sent.copy() if self.watch is not None else sent
        sent_T, times = self._round_trip(coder, sent, counts_MT, self._seeds(step, senders_M), copies_M)
        if self.watch is not None:
            self.watch.add(batch.table_of_sent, exact, sent)
        if ledger is not None:
            before_T = (counts_MT * copies_M[:, None]).sum(axis=0)
            self._record("backward", ledger, step, coder, before_T, sent_T, times)
            if self.watch is None:
                self._record_owned(batch, coder, ledger, step, before_T, sent_T)

    def _record_owned(
        self, batch: RehearsedBatch, coder: Coder, ledger: Ledger, step: int, before_T: Ints, sent_T: Ints
    ) -> None:
        """Put right what was counted for replicated tables whose gradients owners would sum: values are the same."""
        ranks, row = self.layout.ranks, self.dim * coder.item_bytes
        list_K = np.repeat(np.arange(batch.replicated_NT.size), batch.replicated_NT.ravel())
        rows_K = batch.rows_R[batch.travelling : batch.travelling + len(list_K)]
        may_T = self.layout.replicated_T & coder.exact_T
        owned = OwnerSums.choose(list_K, rows_K, may_T, ranks)
        if owned is None:
            return
        right_T = row * np.sum([owned.sent_rows_T(rank) for rank in range(ranks)], axis=0)
        more_T, less_T = (np.where(owned.tables_T, right_T - was_T, 0) for was_T in (row * before_T, sent_T))
        sizes = ranks * message_bytes(1, ranks)
        ledger.accounts["backward"].add(Entry(step, more_T, less_T, sizes, 0.0, 0.0, 0.0), steps=0)

    def _round_trip(
        self, coder: Coder, rows: Rows, counts_MT: Ints, seeds_M: Ints | int, copies_M: Ints | int = 1
    ) -> tuple[Ints, tuple[float, float]]:
        """Replace rows by what arrives; returns bytes sent for each table, seconds of encoding and decoding."""
        begun = perf_counter()
        payload, sizes_MT = coder.encode(rows, counts_MT, seeds_M)
        encoded = perf_counter()
        coder.decode(payload, sizes_MT, counts_MT, rows)
        sent_T = (sizes_MT * np.reshape(copies_M, (-1, 1))).sum(axis=0)
        return sent_T, (encoded - begun, perf_counter() - encoded)

    def _record_ids(
        self, batch: RehearsedBatch, ids_R: Ints, coded: bool, ledger: Ledger, step: int, start: float
    ) -> None:
        ranks, tables, replicated_T = self.layout.ranks, len(self.layout.tables), self.layout.replicated_T
        counts_MT = np.concatenate([batch.travels_NNT.reshape(-1, tables), batch.replicated_NT])
        # a list that nobody sends has no copies; an empty one that is sent costs something
        apart_M = ~np.eye(ranks, dtype=np.bool_).ravel()
        to_owner_MT = apart_M[:, None] & ~replicated_T
        to_all_MT = np.tile((ranks - 1) * replicated_T, (ranks, 1))
        copies_MT = np.concatenate([to_owner_MT, to_all_MT]).astype(np.int64)
        counts = np.append(counts_MT, 0)  # the last: bag lengths, an empty list of each table
        sizes = 8 * counts
        if coded:
            table_R = np.repeat(np.tile(np.arange(tables), len(counts_MT)), counts_MT.ravel())
            local = self.layout.locate(table_R, ids_R[: int(counts.sum())])[1]
            out = np.empty(8 * len(local) + 16 * len(counts), np.uint8)
            ends = np.empty(len(counts) + 1, np.int64)
            kernels.active().encode_ids(counts, local, out, ends, torch.get_num_threads())
            sizes = np.diff(ends)
        before_T = 8 * (counts_MT * copies_MT).sum(axis=0)
        after_T = (sizes[:-1].reshape(-1, tables) * copies_MT).sum(axis=0) + ranks * (ranks - 1) * sizes[-1]
        messages = ranks * message_bytes(2 * tables, ranks)
        ledger.record("ids", Entry(step, before_T, after_T, messages, perf_counter() - start, 0.0, 0.0))

    def _record(
        self,
        direction: Direction,
        ledger: Ledger,
        step: int,
        coder: Coder,
        rows_T: Ints,
        sent_T: Ints,
        times: tuple[float, float],
    ) -> None:
        before_T = rows_T * (self.dim * coder.item_bytes)
        messages = self.layout.ranks * message_bytes(len(self.layout.tables), self.layout.ranks)
        ledger.record(direction, Entry(step, before_T, sent_T, messages, times[0], 0.0, times[1]))

    def _seeds(self, step: int, senders_M: Ints) -> Ints:
        seeds_M: Ints = (step * self.layout.ranks + senders_M) << 20
        return seeds_M

    def _coder(self, plan: ExchangePlan) -> tuple[Coder, Coder]:
        if self._coders is None or self._coders[0] is not plan:
            forward = Coder([codecs.forward for codecs in plan.tables], self.dim, torch.float32)
            backward = Coder([codecs.backward for codecs in plan.tables], self.dim, torch.float32)
            self._coders = (plan, forward, backward)
        return self._coders[1:]
