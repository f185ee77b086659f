"""Rows of the next step that travel while this one computes: all that this step does not change.

Ids of a batch arrive a step before its rows are needed. So an owner knows which of the rows that it
will be asked for nobody looks up in the present step. They do not change, and leave at once; the
others follow when they are updated. Results are those of fetching all rows then, bit for bit. One
bit for each row that was asked for says whether it has come. Shape legend: ``N`` ranks, ``M`` other
ranks, ``T`` tables, ``R`` rows for, or from, all other ranks in their order.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from laconic.exchange.ranks.transport import bounds_of
from laconic.exchange.routing import Part, Service

__all__ = [
    "ChangingRows",
    "PrefetchedRows",
    "bits_of",
    "bytes_of_bits",
    "count_blocks",
    "unchanged",
    "without",
]

Bits = NDArray[np.bool_]
Bytes = NDArray[np.uint8]
Ints = NDArray[np.int64]


class ChangingRows:
    """Rows of a rank's matrix that a batch updates."""

    def __init__(self, rows: int) -> None:
        self._rows = rows
        self._changing, self._marked = np.zeros(0, np.bool_), np.empty(0, np.int64)

    def of(self, service: Service) -> NDArray[np.bool_]:
        """Mark the rows that answered a batch; the array is used again."""
        if not len(self._changing):
            self._changing = np.zeros(self._rows, np.bool_)
        self._changing[self._marked] = False
        self._marked = service.rows_C
        self._changing[self._marked] = True
        return self._changing


@dataclass(frozen=True, slots=True, eq=False)
class PrefetchedRows:
    """What has traveled already."""

    received: torch.Tensor
    """All that this rank asked for; what came early is in its place."""

    sent_R: Bits
    """Rows for the others that have left."""

    sent_NT: Ints
    came_R: Bits
    """Rows of the others that are here."""

    came_NT: Ints


def _rows_of(part: Part) -> Ints:
    """Row of the matrix that each answer is; of a bag its first row, or any if it is empty."""
    if part.offsets is None or not len(part.index):
        return part.index
    return part.index[np.minimum(part.offsets[:-1], len(part.index) - 1)]


def without(part: Part, left_out_R: Bits) -> Part:
    """Return the answers that are not left out."""
    kept_R = ~left_out_R
    rows = int(kept_R.sum())
    if part.offsets is None:
        return Part(part.index[kept_R], None, rows)
    lengths_R = np.diff(part.offsets)
    offsets = bounds_of(lengths_R[kept_R])
    return Part(part.index[np.repeat(kept_R, lengths_R)], offsets, rows)


def unchanged(service: Service, may_T: Bits, others_N: Bits, changed_L: Bits) -> Bits:
    """Find answers for other ranks that may leave: of these tables, and not about to change."""
    counts_MT = service.answers_NT[others_N]
    may_R = np.repeat(np.tile(may_T, len(counts_MT)), counts_MT.ravel())
    rows = _rows_of(service.remote)
    return may_R & ~changed_L[rows] if len(rows) else np.zeros_like(may_R)


def count_blocks(bits_R: Bits, counts_MT: Ints) -> Ints:
    """Count what is set in each block of so many."""
    sums = bounds_of(bits_R.astype(np.int64))
    ends = np.cumsum(counts_MT.ravel())
    counted: Ints = (sums[ends] - sums[ends - counts_MT.ravel()]).reshape(counts_MT.shape)
    return counted


def bytes_of_bits(bits_R: Bits, counts_M: Ints) -> tuple[Bytes, Ints]:
    """Pack each rank's bits from the beginning of a byte; also return how many bytes each gets."""
    pieces = np.split(bits_R, np.cumsum(counts_M)[:-1])
    return np.concatenate([np.packbits(piece) for piece in pieces]), (counts_M + 7) // 8


def bits_of(data: Bytes, counts_M: Ints) -> Bits:
    """Unpack what all ranks packed."""
    pieces = np.split(data, np.cumsum((counts_M + 7) // 8)[:-1])
    bits = [np.unpackbits(piece, count=int(count)) for piece, count in zip(pieces, counts_M, strict=True)]
    return np.concatenate(bits).astype(np.bool_)
