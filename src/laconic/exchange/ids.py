"""Ids to the ranks that own their rows.

Every rank sends each other rank two lists per table: the ids, and the lengths of bags where the
owner pools them and some bag has other than one id.
"""

from __future__ import annotations

from dataclasses import dataclass
from time import perf_counter
from typing import TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from laconic import kernels
from laconic.errors import CommError, ConfigError
from laconic.exchange.bags import Bags
from laconic.exchange.ledger import Entry, Ledger
from laconic.exchange.ranks.heads import Head, Heads
from laconic.exchange.ranks.stages import Stages
from laconic.exchange.ranks.transport import Message, Transport, bounds_of
from laconic.exchange.ranks.worker import RefusedBatchError
from laconic.exchange.routing import IdLists, Request, Service
from laconic.exchange.tables.copies import HotRows
from laconic.exchange.tables.keys import stable_order
from laconic.exchange.tables.layout import Layout
from laconic.lookups import Lookups

__all__ = ["IdExchange", "MaybeLookups", "Routed", "decode_lists", "encode_lists", "lists_for"]

Ints = NDArray[np.int64]
_REFUSED = -1

MaybeLookups: TypeAlias = Lookups | ConfigError
"""What a rank looks up, or why the batch that it was given is none."""


@dataclass(frozen=True, slots=True, eq=False)
class Routed:
    """A batch whose ids have arrived: all that rows and gradients need to find their way."""

    turn: int
    request: Request
    service: Service
    order_C: Ints
    """Sorts the contributions by row, those to one row in rank order."""
    global_samples: int

    @property
    def samples(self) -> int:
        """Of this rank."""
        return self.request.samples

    @property
    def bags(self) -> Bags:
        """How this rank pools what it gets."""
        return self.request.bags


class IdExchange:
    """One rank's ids to all others, and theirs to this one; used by one thread."""

    def __init__(self, layout: Layout, hot: HotRows, transport: Transport, digest: int) -> None:
        """``layout`` is that of all parts; ``digest`` stands for what all ranks must agree on."""
        self.transport = transport
        self._layout, self._hot, self._digest = layout, hot, digest
        self._others = np.arange(layout.ranks) != layout.rank

    def meet(self, patience_s: float | None = None) -> Stages[None]:
        """Compare digests: ranks whose tables differ all raise.

        Later messages have lengths that depend on the tables. ``patience_s``: how long to wait for
        the others, if not as long as for any message.
        """
        nothing = np.zeros((self._layout.ranks, 0), np.int64)
        self.transport.patience_s = patience_s
        self.transport.send(Head(0, self._digest, 0, nothing, nothing))
        yield
        self.transport.hear()
        self.transport.patience_s = None

    def route(self, lookups: MaybeLookups, turn: int, coded: bool, ledger: Ledger | None) -> Stages[Routed]:
        """Send this rank's ids, get those of the others; no ledger counts an evaluation.

        Ids that are not there, or no lookups, are a ``RefusedBatchError`` on every rank.
        """
        start, tables, others = perf_counter(), len(self._layout.tables), self._others
        digest = self._digest ^ int(coded)
        try:
            if isinstance(lookups, ConfigError):
                raise lookups
            request = Request.of(lookups, self._layout, self._hot)
        except ConfigError as error:
            raise (yield from self._refuse(turn, digest, error)) from None
        lists = request.lists
        sent_N2T = np.concatenate([lists.counts_NT, lists.length_counts_NT], axis=1)
        values = np.concatenate([lists.ids[:0], *lists_for(lists, *np.flatnonzero(others).tolist())])
        payload, sizes = encode_lists(values, sent_N2T[others].ravel(), coded)
        bytes_N2T = np.zeros_like(sent_N2T)
        bytes_N2T[others] = sizes.reshape(-1, 2 * tables)
        encoded = perf_counter()

        announced = np.where(others[:, None], sent_N2T, 0)
        head = Head(turn, digest, request.samples, announced, bytes_N2T)
        announced_bytes = self.transport.send(head, Message.each(payload, bytes_N2T.sum(axis=1)))
        yield
        heard = self.transport.hear()
        arrived = self._receive(heard, turn)
        waited, decoding = self.transport.take_time(), perf_counter()
        ids = decode_lists(arrived, heard.bytes_NK[others].ravel(), heard.counts_NK[others].ravel(), coded)
        merged = _merge(ids, heard.counts_NK, lists, self._layout)
        samples_N = heard.samples_N
        samples_N[self._layout.rank] = request.samples
        service = Service.of(merged, samples_N, self._layout)
        order_C = stable_order(service.rows_C)
        if ledger is not None:
            before_T, after_T = (
                (sent[:, :tables] + sent[:, tables:]).sum(axis=0) for sent in (8 * announced, bytes_N2T)
            )
            times = (encoded - start, waited, perf_counter() - decoding)
            ledger.record("ids", Entry(turn, before_T, after_T, announced_bytes, *times))
        return Routed(turn, request, service, order_C, int(samples_N.sum()))

    def _receive(self, heard: Heads, turn: int) -> NDArray[np.uint8]:
        """Return the bytes that all ranks sent.

        Where ranks refuse their batch, raise what the first of them says.
        """
        if (heard.counts_NK[self._others] < 0).any() or (heard.bytes_NK < 0).any():
            raise CommError(
                f"{self.transport.name}: a rank announced a negative size at turn {turn}; "
                "the ranks run different versions"
            )
        coming_N = heard.bytes_NK.sum(axis=1)
        arrived = np.empty(int(coming_N.sum()), np.uint8)
        self.transport.receive(arrived, coming_N)
        for rank in np.flatnonzero(heard.samples_N == _REFUSED):
            self.transport.take_time()
            end = int(coming_N[: rank + 1].sum())
            raise RefusedBatchError(f"rank {rank}: {arrived[end - coming_N[rank] : end].tobytes().decode()}")
        return arrived

    def _refuse(self, turn: int, digest: int, error: ConfigError) -> Stages[RefusedBatchError]:
        """Tell the others why this rank has no ids for them, so that all raise and stay in step.

        It announces ``_REFUSED`` samples, and sends the text of its error in place of ids.
        """
        transport = self.transport
        text = np.frombuffer(str(error).encode(), np.uint8)
        message = Message.same(text, transport.ranks, but=transport.rank)
        bytes_NK = np.zeros((transport.ranks, 2 * len(self._layout.tables)), np.int64)
        bytes_NK[:, 0] = message.sizes_N
        transport.send(Head(turn, digest, _REFUSED, np.zeros_like(bytes_NK), bytes_NK), message)
        yield
        heard = transport.hear()
        coming_N = heard.bytes_NK.sum(axis=1)
        transport.receive(np.empty(int(coming_N.sum()), np.uint8), coming_N)  # nobody looks at it
        transport.take_time()
        return RefusedBatchError(str(error))


def lists_for(lists: IdLists, *ranks: int) -> list[Ints]:
    """Ids and bag lengths for some ranks, one after the other."""
    ids_N1, lengths_N1 = (
        bounds_of(counts_NT.sum(axis=1)) for counts_NT in (lists.counts_NT, lists.length_counts_NT)
    )
    pieces = []
    for rank in ranks:
        pieces.append(lists.ids[ids_N1[rank] : ids_N1[rank + 1]])
        pieces.append(lists.lengths[lengths_N1[rank] : lengths_N1[rank + 1]])
    return pieces


def encode_lists(values: Ints, counts: Ints, coded: bool) -> tuple[NDArray[np.uint8], Ints]:
    """Bytes of lists of these lengths, back to back, and how many each has; none if it is empty."""
    if not coded:
        return values.view(np.uint8), 8 * counts
    filled = np.flatnonzero(counts)
    out = np.empty(8 * len(values) + 16 * len(filled), np.uint8)
    offsets = np.empty(len(filled) + 1, np.int64)
    kernels.active().encode_ids(counts[filled], values, out, offsets, torch.get_num_threads())
    sizes = np.zeros_like(counts)
    sizes[filled] = np.diff(offsets)
    return out[: offsets[-1]], sizes


def decode_lists(data: NDArray[np.uint8], sizes: Ints, counts: Ints, coded: bool) -> Ints:
    """Return lists of these lengths, back to back, from bytes of these sizes."""
    if not coded:
        if len(data) != 8 * counts.sum():
            raise CommError(f"exchange: expected {8 * counts.sum()} bytes of ids, got {len(data)}")
        return data.view(np.int64)
    out = np.empty(int(counts.sum()), np.int64)
    filled = np.flatnonzero(counts)
    if sizes.sum() != sizes[filled].sum():
        raise CommError(
            f"exchange: expected no bytes for empty lists, got {sizes.sum() - sizes[filled].sum()}"
        )
    kernels.active().decode_ids(counts[filled], data, bounds_of(sizes[filled]), out, torch.get_num_threads())
    return out


def _merge(values: Ints, heard_N2T: Ints, own: IdLists, layout: Layout) -> IdLists:
    """Put the lists of all ranks in rank order, this rank's own among them."""
    tables, rank = len(layout.tables), layout.rank
    counts_NT, length_counts_NT = heard_N2T[:, :tables].copy(), heard_N2T[:, tables:].copy()
    counts_NT[rank], length_counts_NT[rank] = own.counts_NT[rank], own.length_counts_NT[rank]
    sizes_2N = np.stack([counts_NT.sum(axis=1), length_counts_NT.sum(axis=1)], axis=1).ravel()
    before = int(sizes_2N[: 2 * rank].sum())
    everyone = np.concatenate([values[:before], *lists_for(own, rank), values[before:]])
    is_id = np.repeat(np.arange(len(sizes_2N)) % 2 == 0, sizes_2N)
    if is_id.all():
        return IdLists(counts_NT, everyone, length_counts_NT, everyone[:0])
    return IdLists(counts_NT, everyone[is_id], length_counts_NT, everyone[~is_id])
