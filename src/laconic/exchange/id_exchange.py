"""Ids to the ranks that own their rows.

Every rank sends each other rank two lists per table: the ids, and the lengths of bags where the
owner pools them and some bag has other than one id.
"""

from __future__ import annotations

from dataclasses import dataclass
from time import perf_counter

import numpy as np
import torch
from numpy.typing import NDArray

from laconic import kernels
from laconic.cost.link import message_bytes
from laconic.errors import CommError, ConfigError
from laconic.exchange.ledger import Entry, Ledger
from laconic.exchange.refusal import check_refusals, refuse
from laconic.exchange.request import Bags, IdLists, Request
from laconic.exchange.service import Service
from laconic.exchange.tables.hot_rows import HotRows
from laconic.exchange.tables.layout import Layout
from laconic.exchange.wire import Wire
from laconic.lookups import Lookups

__all__ = ["Routed", "exchange_ids"]

Ints = NDArray[np.int64]


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


def exchange_ids(
    lookups: Lookups,
    turn: int,
    *,
    coded: bool,
    layout: Layout,
    hot: HotRows,
    digest: int,
    wire: Wire,
    ledger: Ledger | None,
) -> Routed:
    """Send this rank's ids, get those of the others; no ledger counts an evaluation.

    Ids that are not there are a ``RefusedBatchError`` on every rank.
    """
    start = perf_counter()
    tables = len(layout.tables)
    try:
        request = Request.of(lookups, layout, hot)
    except ConfigError as error:
        raise refuse(wire, turn, digest, 2 * tables, error) from None
    lists = request.lists
    sent_N2T = np.concatenate([lists.counts_NT, lists.length_counts_NT], axis=1)
    others = np.arange(layout.ranks) != layout.rank
    counts = sent_N2T[others].ravel()
    values = np.concatenate(
        [piece for rank in np.flatnonzero(others) for piece in _lists_for(lists, rank)] or [lists.ids[:0]]
    )
    payload, sizes = _encode(values, counts, coded)
    bytes_N2T = np.zeros_like(sent_N2T)
    bytes_N2T[others] = sizes.reshape(-1, 2 * tables)
    encoded = perf_counter()

    announced = np.where(others[:, None], sent_N2T, 0)
    message = (payload, bytes_N2T.sum(axis=1))
    heard = wire.announce(turn, digest, request.samples, announced, bytes_N2T, message)
    coming_counts = heard.counts_NK[others].ravel()
    if (coming_counts < 0).any() or (heard.bytes_NK < 0).any():
        raise CommError(
            f"{wire.name}: a rank announced a negative size at turn {turn}; the ranks run different versions"
        )
    coming_N = heard.bytes_NK.sum(axis=1)
    arrived = np.empty(int(coming_N.sum()), np.uint8)
    wire.receive(arrived, coming_N)
    check_refusals(wire, heard, arrived)
    waited = wire.take_time()

    decoding = perf_counter()
    ids = _decode(arrived, heard.bytes_NK[others].ravel(), coming_counts, coded)
    merged = _merge(ids, heard.counts_NK, lists, layout)
    samples_N = heard.samples_N
    samples_N[layout.rank] = request.samples
    service = Service.of(merged, samples_N, layout)
    order_C = np.argsort(service.rows_C, kind="stable")
    routed = Routed(turn, request, service, order_C, int(samples_N.sum()))
    if ledger is None:
        return routed
    before_T = 8 * (announced[:, :tables] + announced[:, tables:]).sum(axis=0)
    after_T = (bytes_N2T[:, :tables] + bytes_N2T[:, tables:]).sum(axis=0)
    ledger.record(
        "ids",
        Entry(
            turn,
            before_T,
            after_T,
            message_bytes(2 * tables, layout.ranks),
            encoded - start,
            waited,
            perf_counter() - decoding,
        ),
    )
    return routed


def _lists_for(lists: IdLists, rank: int | np.int64) -> tuple[Ints, Ints]:
    def part(values: Ints, counts_NT: Ints) -> Ints:
        per_rank = counts_NT.sum(axis=1)
        start = int(per_rank[:rank].sum())
        return values[start : start + int(per_rank[rank])]

    return part(lists.ids, lists.counts_NT), part(lists.lengths, lists.length_counts_NT)


def _encode(values: Ints, counts: Ints, coded: bool) -> tuple[NDArray[np.uint8], Ints]:
    if not coded:
        return values.view(np.uint8), 8 * counts
    out = np.empty(8 * len(values) + 16 * len(counts), np.uint8)
    offsets = np.empty(len(counts) + 1, np.int64)
    kernels.active().encode_ids(counts, values, out, offsets, torch.get_num_threads())
    return out[: offsets[-1]], np.diff(offsets)


def _decode(data: NDArray[np.uint8], sizes: Ints, counts: Ints, coded: bool) -> Ints:
    if not coded:
        if len(data) != 8 * counts.sum():
            raise CommError(f"exchange: expected {8 * counts.sum()} bytes of ids, got {len(data)}")
        return data.view(np.int64)
    out = np.empty(int(counts.sum()), np.int64)
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    kernels.active().decode_ids(counts, data, offsets, out, torch.get_num_threads())
    return out


def _merge(values: Ints, heard_N2T: Ints, own: IdLists, layout: Layout) -> IdLists:
    """Put the lists of all ranks in rank order, this rank's own among them."""
    tables = len(layout.tables)
    counts_NT, length_counts_NT = heard_N2T[:, :tables].copy(), heard_N2T[:, tables:].copy()
    ids, lengths = [], []
    start = 0
    for rank in range(layout.ranks):
        if rank == layout.rank:
            own_ids, own_lengths = _lists_for(own, rank)
            counts_NT[rank], length_counts_NT[rank] = own.counts_NT[rank], own.length_counts_NT[rank]
        else:
            middle = start + int(counts_NT[rank].sum())
            end = middle + int(length_counts_NT[rank].sum())
            own_ids, own_lengths = values[start:middle], values[middle:end]
            start = end
        ids.append(own_ids)
        lengths.append(own_lengths)
    return IdLists(counts_NT, np.concatenate(ids), length_counts_NT, np.concatenate(lengths))
