"""Gradients of replicated rows, which owners sum and send to all.

If every rank sent its gradients to every other, bytes would grow with the number of ranks. So each
replicated row has an owner that gets its gradients, as if the table were split by rows; in a turn
of its own it sends everyone ids and sums::

    ranks -> owner   ids, gradients          in the turns of ids and gradients, as for other tables
    owner -> all     ids, how many gradients are in each sum, sums

All ranks, the owner too, update their copies by the sum that travelled, so copies stay equal.

A sum of ``m`` gradients has the noise of ``m`` roundings. Its own bound is ``sqrt(m) / 2`` times
that of a gradient, if that is wider (``m`` on average over a block): noise grows by a quarter at
most, and sums of many gradients, which are larger, take no more bits than these. Otherwise the
bound is that of a gradient. A sum of rounded gradients then lies on its grid already, and nothing
is rounded twice.

Shape legend: ``N`` ranks, ``P`` parts of tables, ``C`` contributions to rows, ``V`` summed rows,
``D`` dimensions.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from laconic import kernels
from laconic.errors import CommError
from laconic.exchange.coder import Coder
from laconic.exchange.contributions import Contributions
from laconic.exchange.ids import decode_lists, encode_lists
from laconic.exchange.ranks.heads import Head
from laconic.exchange.ranks.stages import Stages
from laconic.exchange.ranks.transport import Message, Transport
from laconic.exchange.tables.keys import RowKey, stable_order
from laconic.exchange.tables.layout import Layout

__all__ = ["OwnSums", "ReplicaSums"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Rows = NDArray[Any]


@dataclass(frozen=True, slots=True, eq=False)
class OwnSums:
    """Sums of the gradients of rows that this rank owns."""

    counts_P: Ints
    """Rows of each part."""
    number_V: Ints
    """Which of the rows that this rank sums."""
    gradients_V: Ints
    """How many gradients each sum has."""
    sums_VD: Rows

    @classmethod
    def of(cls, came: Contributions, part_C: Ints, id_C: Ints, layout: Layout) -> OwnSums:
        """Add up, in rank order, what came for rows that are this rank's to sum."""
        rank_C, number_C = layout.sums_of(part_C, id_C)
        at_C = np.flatnonzero(layout.summed_T[part_C] & (rank_C == layout.rank))
        key_C = RowKey.pack(part_C[at_C], number_C[at_C])
        order_C = stable_order(key_C)
        at_C, key_C = at_C[order_C], key_C[order_C]
        first_V = np.flatnonzero(np.diff(key_C, prepend=-1))
        offsets = np.append(first_V, len(at_C))
        sums_VD = np.empty((len(first_V), came.gradients.shape[1]), came.gradients.dtype)
        kernels.active().sum_bags(sums_VD, came.gradients, came.gradient_C[at_C], offsets)
        first_C = at_C[first_V]
        counts_P = np.bincount(part_C[first_C], minlength=len(layout.tables))
        return cls(counts_P, number_C[first_C], np.diff(offsets), sums_VD)


@dataclass(frozen=True, slots=True, eq=False)
class ReplicaSums:
    """The sums of all ranks, as they arrived on every one."""

    part_V: Ints
    rows_V: Ints
    """Row of this rank's matrix that each is for."""
    sums_VD: Rows
    roundings_V: Floats
    """Variance of each sum, in that of a rounded gradient."""
    announced: int
    """Bytes that announced what this rank sent, of ids and of sums by part."""
    id_bytes_P: Ints
    sum_bytes_P: Ints

    @classmethod
    def exchange(
        cls, own: OwnSums, layout: Layout, coder: Coder, transport: Transport, head: Head, seed: int
    ) -> Stages[ReplicaSums]:
        """Send this rank's sums, and take those of all; ``head`` says at which turn."""
        ranks, parts = layout.ranks, len(layout.tables)
        ids, id_bytes_2P = encode_lists(
            np.concatenate([own.number_V, own.gradients_V]), np.tile(own.counts_P, 2), coded=True
        )
        scale_1P = _scale(own.counts_P, own.gradients_V)[None]
        sums, bytes_1P = coder.encode(own.sums_VD, own.counts_P[None], seed, scale_1P)
        counts_3P = np.concatenate([own.counts_P, np.zeros(2 * parts, np.int64)])
        bytes_3P = np.concatenate([id_bytes_2P, bytes_1P[0]])
        head = replace(head, counts_NK=np.tile(counts_3P, (ranks, 1)), bytes_NK=np.tile(bytes_3P, (ranks, 1)))
        announced = transport.send(head, Message.same(ids, ranks), Message.same(sums, ranks))
        yield
        heard = transport.hear()
        counts_NP = heard.counts_NK[:, :parts]
        if (counts_NP < 0).any() or (heard.bytes_NK < 0).any():
            raise CommError(
                f"{transport.name}: a rank announced sums of a negative size at turn {head.turn}; "
                "the ranks run different versions"
            )
        number_V, gradients_V = _receive_ids(transport, heard.bytes_NK[:, : 2 * parts], counts_NP)
        part_V = np.repeat(np.tile(np.arange(parts), ranks), counts_NP.ravel())
        rank_V = np.repeat(np.arange(ranks), counts_NP.sum(axis=1))
        id_V = layout.summed_ids(part_V, rank_V, number_V)
        is_row_V = (number_V >= 0) & (id_V < layout.rows_T[part_V]) & layout.summed_T[part_V]
        wrong = np.flatnonzero(~is_row_V | (gradients_V < 1))
        if len(wrong):
            raise CommError(
                f"{transport.name}: expected sums of replicated rows at turn {head.turn}, got row "
                f"{id_V[wrong[0]]} of table {layout.tables[part_V[wrong[0]]].name!r}; the ranks' tables differ"
            )
        sums_VD = np.empty((len(id_V), own.sums_VD.shape[1]), own.sums_VD.dtype)
        _receive_sums(transport, coder, heard.bytes_NK[:, 2 * parts :], counts_NP, sums_VD)
        scale_V = np.repeat(_scale(counts_NP.ravel(), gradients_V), counts_NP.ravel())
        id_bytes_P = id_bytes_2P.reshape(2, parts).sum(axis=0) * (ranks - 1)
        return cls(
            part_V,
            layout.rows_of(part_V, id_V),
            sums_VD,
            np.where(scale_V > 1, gradients_V + scale_V**2, gradients_V * 1.0),
            announced,
            id_bytes_P,
            bytes_1P[0] * (ranks - 1),
        )


def _scale(counts_K: Ints, gradients_V: Ints) -> Floats:
    """Return by how much the bound of each block of sums is wider than that of gradients."""
    block_V = np.repeat(np.arange(len(counts_K)), counts_K)
    mean_K = np.bincount(block_V, gradients_V, len(counts_K)) / np.maximum(counts_K, 1)
    return np.maximum(np.sqrt(mean_K) / 2, 1.0)


def _receive_ids(transport: Transport, bytes_N2P: Ints, counts_NP: Ints) -> tuple[Ints, Ints]:
    """Return ids of summed rows of all ranks, and how many gradients are in each sum."""
    data = np.empty(int(bytes_N2P.sum()), np.uint8)
    transport.receive(data, bytes_N2P.sum(axis=1))
    counts_N2P = np.tile(counts_NP, 2)
    values = decode_lists(data, bytes_N2P.ravel(), counts_N2P.ravel(), coded=True)
    parts = counts_NP.shape[1]
    is_id = np.repeat(np.tile(np.arange(2 * parts) < parts, len(counts_NP)), counts_N2P.ravel())
    return values[is_id], values[~is_id]


def _receive_sums(transport: Transport, coder: Coder, bytes_NP: Ints, counts_NP: Ints, out: Rows) -> None:
    """Fill ``out`` with the sums of all ranks; exact ones are bytes of it."""
    total = int(bytes_NP.sum())
    if coder.exact and total != out.nbytes:
        raise CommError(f"{transport.name}: expected {out.nbytes} bytes of sums, got {total} announced")
    data = out.reshape(-1).view(np.uint8) if coder.exact else np.empty(total, np.uint8)
    transport.receive(data, bytes_NP.sum(axis=1))
    coder.decode(data, bytes_NP, counts_NP, out)
