"""Sums of dense gradients that travel coded: every layer a block, all of them in one native call.

::

    two ranks     each sends all it has, coded                                 bytes b
    more          segments to their owners, coded; their sums to all, coded    bytes 2 (N - 1) / N b

``Lossless`` blocks make the sum that ``sum_dense`` makes, bit for bit. ``Levels`` make every entry
as precise as any other, which optimizers with a divisor for each entry need. Bounded codecs round
without bias, with another seed for every step and rank, so nothing needs to be remembered: errors
average out as the noise of batches does. All ranks sum decoded values in rank order, their own
included, and so stay equal to the bit.

Shape legend: ``N`` ranks, ``P`` pieces of layers, ``S`` values of a segment.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray

from laconic import kernels
from laconic.codecs import Bounded, BoundedRows, Lossless
from laconic.codecs.batch import Batch, BlockCodec
from laconic.exchange.ranks.transport import Channel, Message, bounds_of, even_bounds

__all__ = ["Levels", "decode_pieces", "encode_pieces", "sum_coded"]

Bytes = NDArray[np.uint8]
Floats = NDArray[np.float32]
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Levels:
    """Gradients travel as floats of two bits behind the leading one, entropy-coded.

    Every value arrives within a ninth of itself, in about 6 bits. Values that are 25 octaves
    smaller than their layer's largest become 0; a layer that is not finite becomes NaN.

    >>> model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 1))
    >>> compressor = laconic.register_ddp(model, laconic.Levels())
    >>> compressor.close()
    """


_WHOLE = Bounded(0.45)  # levels are integers, and come back as the nearest


def sum_coded(channel: Channel, x: Floats, layers: Ints, codec: BlockCodec | Levels, step: int) -> None:
    """Sum over all ranks, in place; layer ``l`` is from ``layers[l]`` to ``layers[l + 1]``."""
    mine = _reseeded(codec, step, channel.rank)
    if channel.ranks == 1:
        return
    if channel.ranks == 2:
        _sum_of_two(channel, x, np.diff(layers), mine)
        return
    cuts = even_bounds(len(x), channel.ranks)
    pieces = np.unique(np.concatenate([layers, cuts]))
    owner_P = np.searchsorted(cuts, pieces[:-1], side="right") - 1
    counts_P = np.diff(pieces)
    message, sizes_P, bases_P = encode_pieces(channel, mine, x, counts_P)
    sent_N = np.bincount(owner_P, sizes_P, minlength=channel.ranks).astype(np.int64)
    own_P = owner_P == channel.rank
    places = _Places.of(owner_P, channel.ranks)
    # an owner is told of its own pieces only: heads of all would grow with the square of the ranks
    heard_NK = channel.announce(places.heads(sizes_P, bases_P), Message.each(message, sent_N))
    sizes_NO, bases_NO = places.of_owner(heard_NK, channel.rank)
    coming_N = sizes_NO.sum(axis=1)
    heard = channel.buffer("heard pieces", int(coming_N.sum()), np.uint8)
    channel.receive(heard, coming_N)
    parts_NS = decode_pieces(
        channel,
        codec,
        heard,
        sizes_NO.reshape(-1),
        np.tile(counts_P[own_P], channel.ranks),
        bases_NO.reshape(-1),
    ).reshape(channel.ranks, -1)
    total = channel.buffer("sum of pieces", parts_NS.shape[1], np.float32)
    _sum(parts_NS, total)
    again, again_P, base_P = encode_pieces(
        channel, _reseeded(codec, ~step, channel.rank), total, counts_P[own_P]
    )
    sizes_P[own_P], bases_P[own_P] = again_P, base_P
    mine_K = places.heads(sizes_P, bases_P)[channel.rank]
    heard_NK = channel.announce_to_all(*mine_K.tolist(), messages=[channel.to_all(again)])
    sizes_P, bases_P = places.collect(heard_NK)
    heard = channel.buffer("heard sums", int(sizes_P.sum()), np.uint8)
    channel.receive(heard, np.bincount(owner_P, sizes_P, minlength=channel.ranks).astype(np.int64))
    x[:] = decode_pieces(channel, codec, heard, sizes_P, counts_P, bases_P)


@dataclass(frozen=True, slots=True)
class _Places:
    """Where the numbers of each piece are in the heads for, or of, its owner.

    A head has sizes of the owner's pieces, and then what their levels begin with, and as many
    numbers as the owner of most pieces needs.
    """

    owner_P: Ints
    place_P: Ints
    ranks: int

    @classmethod
    def of(cls, owner_P: Ints, ranks: int) -> _Places:
        return cls(owner_P, np.arange(len(owner_P)) - np.searchsorted(owner_P, owner_P), ranks)

    def heads(self, sizes_P: Ints, bases_P: Ints) -> Ints:
        """Return the numbers for each owner, N x K."""
        most = int(self.place_P.max(initial=-1)) + 1
        numbers_N2M = np.zeros((self.ranks, 2, most), np.int64)
        numbers_N2M[self.owner_P, 0, self.place_P] = sizes_P
        numbers_N2M[self.owner_P, 1, self.place_P] = bases_P
        return numbers_N2M.reshape(self.ranks, -1)

    def of_owner(self, heard_NK: Ints, owner: int) -> tuple[Ints, Ints]:
        """Return sizes and bases that all ranks have for an owner's pieces."""
        pieces, half = np.count_nonzero(self.owner_P == owner), heard_NK.shape[1] // 2
        return heard_NK[:, :pieces], heard_NK[:, half : half + pieces]

    def collect(self, heard_NK: Ints) -> tuple[Ints, Ints]:
        """Return sizes and bases of all pieces, as their owners told them."""
        half = heard_NK.shape[1] // 2
        return heard_NK[self.owner_P, self.place_P], heard_NK[self.owner_P, half + self.place_P]


def encode_pieces(
    channel: Channel, codec: BlockCodec | Levels, x: Floats, counts_P: Ints
) -> tuple[Bytes, Ints, Ints]:
    """Blocks of all pieces, back to back, the bytes of each, and the bases of their levels."""
    bases_P = np.zeros(len(counts_P), np.int32)
    values = x
    if isinstance(codec, Levels):
        values = channel.buffer("levels", len(x), np.float32)
        kernels.active().to_levels(x, counts_P, values, bases_P)
        codec = _WHOLE
    batch = Batch.of([(codec, (count,)) for count in counts_P.tolist()])
    room = torch.from_numpy(channel.buffer("encoded", batch.max_bytes, np.uint8))
    message, offsets = batch.encode(torch.from_numpy(values), room)
    return message.numpy(), np.diff(offsets.numpy()), bases_P.astype(np.int64)


def decode_pieces(
    channel: Channel,
    codec: BlockCodec | Levels,
    data: Bytes,
    sizes_P: Ints,
    counts_P: Ints,
    bases_P: Ints | None = None,
) -> Floats:
    """Values of all pieces, back to back."""
    block = _WHOLE if isinstance(codec, Levels) else codec
    batch = Batch.of([(block, (count,)) for count in counts_P.tolist()])
    out: Floats = channel.buffer("decoded", batch.values, np.float32)
    offsets = torch.from_numpy(bounds_of(sizes_P))
    batch.decode(torch.from_numpy(data), offsets, out=torch.from_numpy(out))
    if isinstance(codec, Levels) and bases_P is not None:
        kernels.active().from_levels(out, counts_P, bases_P.astype(np.int32), out)
    return out


def _announce(channel: Channel, sizes_P: Ints, bases_P: Ints, message: Message) -> tuple[Ints, Ints]:
    """Tell all ranks the bytes and bases of all pieces, send those, and hear the others'."""
    heard = channel.announce_to_all(*sizes_P.tolist(), *bases_P.tolist(), messages=[message])
    return heard[:, : len(sizes_P)], heard[:, len(sizes_P) :]


def _sum_of_two(channel: Channel, x: Floats, counts_P: Ints, codec: BlockCodec | Levels) -> None:
    """Add what both ranks decode: the other's values of this rank, and this rank's of the other."""
    message, sizes_P, bases_P = encode_pieces(channel, codec, x, counts_P)
    sizes_NP, bases_NP = _announce(
        channel, sizes_P, bases_P, Message.same(message, channel.ranks, but=channel.rank)
    )
    if isinstance(codec, Levels):  # what was encoded is still there
        levels = channel.buffer("levels", len(x), np.float32)
        kernels.active().from_levels(levels, counts_P, bases_P.astype(np.int32), x)
    elif isinstance(codec, Lossless):
        x += 0  # as in a sum from 0: -0.0 becomes 0.0
    else:
        x[:] = decode_pieces(channel, codec, message, sizes_P, counts_P)
    other = 1 - channel.rank
    coming_N = np.where(np.arange(2) == other, sizes_NP.sum(axis=1), 0)
    heard = channel.buffer("heard pieces", int(coming_N.sum()), np.uint8)
    channel.receive(heard, coming_N)
    theirs = decode_pieces(channel, codec, heard, sizes_NP[other], counts_P, bases_NP[other])
    np.add(
        *((x, theirs) if channel.rank == 0 else (theirs, x)), out=x
    )  # in rank order: one NaN, or the other


def _sum(parts_NS: Floats, out: Floats) -> None:
    np.add(parts_NS[0], np.float32(0), out=out)
    for part in parts_NS[1:]:
        out += part


def _reseeded(codec: BlockCodec | Levels, step: int, rank: int) -> BlockCodec | Levels:
    if isinstance(codec, BoundedRows) and codec.rounding == "unbiased":
        return replace(codec, seed=zlib.crc32(f"{codec.seed} {step} {rank}".encode()))
    return codec
