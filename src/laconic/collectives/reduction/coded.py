"""Sums of dense gradients that travel within a bound: every layer a block, all of them in one native call.

::

    two ranks     each sends all it has, coded                                 bytes b
    more          segments to their owners, coded; their sums to all, coded    bytes 2 (N - 1) / N b

Rounding is unbiased, with a seed that is another for every step and rank, so nothing needs to be remembered: errors
average out as the noise of batches does. All ranks sum decoded values in rank order, their own included, and so stay
equal to the bit. Shape legend: ``N`` ranks, ``P`` pieces of layers.
"""

from __future__ import annotations

import zlib
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from laconic.codecs import BoundedRows
from laconic.codecs.batch import Batch, BlockCodec
from laconic.collectives.reduction.parcels import Parcels, even_bounds

__all__ = ["decode_pieces", "encode_pieces", "sum_coded"]

Bytes = NDArray[np.uint8]
Floats = NDArray[np.float32]
Ints = NDArray[np.int64]


def sum_coded(parcels: Parcels, x: Floats, layers: Ints, codec: BlockCodec, step: int) -> None:
    """Sum over all ranks, in place; layer ``l`` is from ``layers[l]`` to ``layers[l + 1]``."""
    mine = _dithered(codec, step, parcels.rank)
    if parcels.ranks == 1:
        return
    if parcels.ranks == 2:
        x[:] = _sum(_spread(parcels, x, np.diff(layers), mine))
        return
    cuts = even_bounds(len(x), parcels.ranks)
    pieces = np.unique(np.concatenate([layers, cuts]))
    owner_P = np.searchsorted(cuts, pieces[:-1], side="right") - 1
    counts_P = np.diff(pieces)
    message, sizes_P = encode_pieces(mine, x, counts_P)
    sizes_NP = parcels.announce_to_all(*sizes_P.tolist())
    own_P = owner_P == parcels.rank
    coming_N = sizes_NP[:, own_P].sum(axis=1)
    heard = parcels.room("heard pieces", int(coming_N.sum()), np.uint8)
    sent_N = np.bincount(owner_P, sizes_P, minlength=parcels.ranks).astype(np.int64)
    at, to = int(sent_N[: parcels.rank].sum()), int(coming_N[: parcels.rank].sum())
    heard[to : to + coming_N[parcels.rank]] = message[at : at + sent_N[parcels.rank]]
    parcels.swap(heard, message, coming_N, sent_N)
    parts_NS = decode_pieces(
        parcels, codec, heard, sizes_NP[:, own_P].reshape(-1), np.tile(counts_P[own_P], parcels.ranks)
    ).reshape(parcels.ranks, -1)
    total = _sum(parts_NS)
    again, again_P = encode_pieces(_dithered(codec, ~step, parcels.rank), total, counts_P[own_P])
    all_P = np.zeros(len(counts_P), np.int64)
    all_P[own_P] = again_P
    sizes_P = parcels.announce_to_all(*all_P.tolist()).sum(axis=0)
    heard = parcels.room("heard sums", int(sizes_P.sum()), np.uint8)
    parcels.spread(again, heard, np.bincount(owner_P, sizes_P, minlength=parcels.ranks).astype(np.int64))
    x[:] = decode_pieces(parcels, codec, heard, sizes_P, counts_P)


def encode_pieces(codec: BlockCodec, x: Floats, counts_P: Ints) -> tuple[Bytes, Ints]:
    """Blocks of all pieces, back to back, and the bytes of each."""
    batch = Batch.of([(codec, (count,)) for count in counts_P.tolist()])
    message, offsets = batch.encode(torch.from_numpy(x))
    return message.numpy(), np.diff(offsets.numpy())


def decode_pieces(parcels: Parcels, codec: BlockCodec, data: Bytes, sizes_P: Ints, counts_P: Ints) -> Floats:
    """Values of all pieces, back to back."""
    batch = Batch.of([(codec, (count,)) for count in counts_P.tolist()])
    out: Floats = parcels.room("decoded", batch.values, np.float32)
    offsets = torch.from_numpy(np.concatenate([[0], np.cumsum(sizes_P)]))
    batch.decode(torch.from_numpy(data), offsets, out=torch.from_numpy(out))
    return out


def _spread(parcels: Parcels, x: Floats, counts_P: Ints, codec: BlockCodec) -> Floats:
    """All that all ranks have, decoded, a row each."""
    message, sizes_P = encode_pieces(codec, x, counts_P)
    sizes_NP = parcels.announce_to_all(*sizes_P.tolist())
    heard = parcels.room("heard pieces", int(sizes_NP.sum()), np.uint8)
    parcels.spread(message, heard, sizes_NP.sum(axis=1))
    counts = np.tile(counts_P, parcels.ranks)
    return decode_pieces(parcels, codec, heard, sizes_NP.reshape(-1), counts).reshape(parcels.ranks, -1)


def _sum(parts_NS: Any) -> Floats:
    total = parts_NS[0] + np.float32(0)
    for part in parts_NS[1:]:
        total += part
    return total  # type: ignore[no-any-return]


def _dithered(codec: BlockCodec, step: int, rank: int) -> BlockCodec:
    if isinstance(codec, BoundedRows) and codec.dither is not None:
        return replace(codec, dither=zlib.crc32(f"{codec.dither} {step} {rank}".encode()))
    return codec
