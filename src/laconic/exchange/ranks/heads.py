"""Heads: what a rank announces to each other rank in a turn, in few bytes.

A head is a row of numbers, of which small ones take a byte and zeros a bit
(``docs/formats/head.md``)::

    turn   plan digest   samples   checksum   bytes of K blocks   counts of K blocks

Both ends may know the counts, as those of rows follow from ids. Then a checksum travels instead.
On hundreds of ranks a block has about one row, so that heads of fixed width would be larger than
the rows. Shape legend: ``N`` ranks, ``K`` blocks, ``H`` numbers of a head.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from laconic import kernels
from laconic.data.hashing import mix64
from laconic.errors import CommError, FormatError

__all__ = ["Head", "Heads", "decode_heads", "encode_heads"]

Bytes = NDArray[np.uint8]
Ints = NDArray[np.int64]
_TURN, _DIGEST, _SAMPLES, _CHECKSUM, _FIRST = range(5)
_CHECKSUM_BITS = 28  # of four bytes


@dataclass(frozen=True, slots=True)
class Head:
    """What one rank announces in a turn."""

    turn: int
    digest: int
    """Stands for all that must be the same on every rank."""
    samples: int
    counts_NK: Ints
    bytes_NK: Ints
    counts_known: bool = False
    """Whether those who hear this know the counts: they do not travel, but are compared."""


@dataclass(frozen=True, slots=True)
class Heads:
    """What all ranks announced to this one."""

    samples_N: Ints
    counts_NK: Ints
    bytes_NK: Ints


def encode_heads(head: Head, rank: int) -> tuple[Bytes, Ints]:
    """Return the bytes for all ranks, back to back, and how many are for each; none for itself."""
    ranks, blocks = head.counts_NK.shape
    numbers_NH = np.zeros((ranks, _width(head)), np.int64)
    numbers_NH[:, [_TURN, _DIGEST, _SAMPLES]] = (head.turn, head.digest, head.samples)
    numbers_NH[:, _FIRST : _FIRST + blocks] = head.bytes_NK
    if head.counts_known:
        numbers_NH[:, _CHECKSUM] = _checksum_N(head.counts_NK)
    else:
        numbers_NH[:, _FIRST + blocks :] = head.counts_NK
    others_MH = np.delete(numbers_NH, rank, axis=0)
    most = 10 * _width(head) + _width(head) // 8 + 1
    out = np.empty(most * len(others_MH), np.uint8)
    offsets = np.empty(len(others_MH) + 1, np.int64)
    kernels.active().encode_heads(others_MH, out, offsets)
    return out[: offsets[-1]], np.insert(np.diff(offsets), rank, 0)


def decode_heads(where: str, rank: int, head: Head, data: Bytes, sizes_N: Ints, expected_NK: Ints) -> Heads:
    """Return what all ranks announced; ``CommError`` if one is elsewhere.

    ``head`` is what this rank announced, ``expected_NK`` are the counts of the others where they do
    not travel.
    """
    others_MH = np.empty((len(sizes_N) - 1, _width(head)), np.int64)
    offsets = np.zeros(len(sizes_N), np.int64)
    np.cumsum(np.delete(sizes_N, rank), out=offsets[1:])
    try:
        kernels.active().decode_heads(data, offsets, others_MH)
    except FormatError as error:
        raise CommError(
            f"{where}: another rank does something else at turn {head.turn} than rank {rank} ({error}); "
            "the ranks are out of step"
        ) from None
    numbers_NH = np.insert(others_MH, rank, 0, axis=0)
    numbers_NH[rank, [_TURN, _DIGEST, _SAMPLES]] = (head.turn, head.digest, head.samples)
    wrong_N = (numbers_NH[:, _TURN] != head.turn) | (numbers_NH[:, _DIGEST] != head.digest)
    for other in np.flatnonzero(wrong_N):
        raise CommError(
            f"{where}: rank {other} is at turn {numbers_NH[other, _TURN]} with plan "
            f"{numbers_NH[other, _DIGEST]:016x}, rank {rank} at turn {head.turn} with plan {head.digest:016x}; "
            "the ranks are out of step"
        )
    blocks = head.counts_NK.shape[1]
    bytes_NK = numbers_NH[:, _FIRST : _FIRST + blocks]
    bytes_NK[rank] = head.bytes_NK[rank]
    if not head.counts_known:
        counts_NK = numbers_NH[:, _FIRST + blocks :]
        counts_NK[rank] = head.counts_NK[rank]
        return Heads(numbers_NH[:, _SAMPLES].copy(), counts_NK, bytes_NK)
    wrong_N = numbers_NH[:, _CHECKSUM] != _checksum_N(expected_NK)
    wrong_N[rank] = False
    for other in np.flatnonzero(wrong_N):
        raise CommError(
            f"{where}: rank {other} sends other numbers of rows at turn {head.turn} than the "
            f"{expected_NK[other].sum()} that rank {rank} expects of it; the ranks are out of step"
        )
    return Heads(numbers_NH[:, _SAMPLES].copy(), expected_NK, bytes_NK)


def _width(head: Head) -> int:
    blocks: int = head.counts_NK.shape[1]
    return _FIRST + blocks * (1 if head.counts_known else 2)


def _checksum_N(counts_NK: Ints) -> Ints:
    """Return a number for each rank that differs, most likely, where any count does."""
    sums_N = (counts_NK.view(np.uint64) * _weights_K(counts_NK.shape[1])).sum(axis=1, dtype=np.uint64)
    checksum_N: Ints = (sums_N >> np.uint64(64 - _CHECKSUM_BITS)).astype(np.int64)
    return checksum_N


@cache
def _weights_K(blocks: int) -> NDArray[np.uint64]:
    """Return odd numbers, so that another count is another sum."""
    return mix64(np.arange(1, blocks + 1)) | np.uint64(1)
