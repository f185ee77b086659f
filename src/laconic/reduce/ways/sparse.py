"""Sums of tensors that are mostly zero: two ways, one result, and a look at how full tensors are.

======  =============================================  ===================  ======
method  what travels                                   bytes sent           rounds
======  =============================================  ===================  ======
gather  what each rank has, to everyone                (N - 1) r            2
owners  segments to their owners, their sums to all    (N - 1) / N (r + u)  4
======  =============================================  ===================  ======

``r`` bytes are there on each rank, ``u`` in the union of all. ``gather`` is best for two ranks, and
where ranks have different places; ``owners`` for many ranks with places in common. Each round of
data is announced by a round of sizes.

A look takes a few places, the same on every rank, and each rank tells which of them it has. So all
know how full each tensor and the union are, in words and in runs of words, and decide alike.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from laconic import kernels
from laconic.exchange.ranks.transport import Channel, Message, bounds_of, even_bounds
from laconic.kernels import SparseParts

__all__ = ["UNITS", "Fullness", "sample_fullness", "sum_by_owners", "sum_gathered"]

UNITS = (1, 16, 64)
"""Neighboring words that may be there together; the sample tells which fits."""
_RUN, _RUNS = 64, 256  # words of one look, and looks

_PIECE, _PIECES = 1 << 20, 2  # words that are worth a round of messages; more pieces cost more than they hide
Ints = NDArray[np.int64]
Bytes = NDArray[np.uint8]
Values = NDArray[Any]


@dataclass(frozen=True, slots=True)
class Fullness:
    """Shares of units that are there, one number for every unit in ``UNITS``."""

    ranks: tuple[float, ...]
    """Share that one rank has, on average."""
    union: tuple[float, ...]
    """Share that any rank has."""


def sample_fullness(channel: Channel, x: NDArray[Any]) -> Fullness:
    """Look, and tell the others; one round of messages of 2 kB."""
    there = np.zeros(_RUN * _RUNS, bool)
    if len(x) <= len(there):
        there[: len(x)] = x != 0
        words = len(x)
    else:
        starts = np.arange(_RUNS) * ((len(x) - _RUN) // (_RUNS - 1)) // _RUN * _RUN
        there[:] = (x[(starts[:, None] + np.arange(_RUN)).reshape(-1)]) != 0
        words = len(there)
    bits = np.packbits(there)
    sizes_N = np.full(channel.ranks, len(bits))
    heard = channel.buffer("sample", int(sizes_N.sum()), np.uint8)
    channel.announce_to_all(messages=[channel.to_all(bits)])
    channel.receive(heard, sizes_N)
    all_NW = np.unpackbits(heard.reshape(channel.ranks, -1), axis=1)[:, :words].astype(bool)
    return Fullness(
        tuple(float(np.mean([_share(one_W, unit) for one_W in all_NW])) for unit in UNITS),
        tuple(_share(np.logical_or.reduce(all_NW), unit) for unit in UNITS),
    )


def sum_gathered(channel: Channel, x: Values, unit: int) -> None:
    """Sum over all ranks, in place: everyone hears everything.

    A large tensor goes piece by piece: one travels while the next is compacted.
    """
    active = kernels.active()
    pieces = list(pairwise(even_bounds(len(x), min(_PIECES, 1 + len(x) // _PIECE), 32768).tolist()))
    heard = []
    for number, (start, end) in enumerate(pieces):
        index, values, _ = _compact(channel, x[start:end], np.array([0, end - start]), unit, number)
        heard.append(channel.later(_everyone, channel, index, values, number))
    for (start, end), parts in zip(pieces, heard, strict=True):
        active.place_sum(parts.result(), unit, x[start:end])


def sum_by_owners(channel: Channel, x: Values, unit: int) -> None:
    """Sum over all ranks, in place: every rank sums one segment."""
    active = kernels.active()
    bounds = even_bounds(len(x), channel.ranks, unit)
    words = int(bounds[channel.rank + 1] - bounds[channel.rank])
    index, values, sizes_N2 = _compact(channel, x, bounds, unit)
    theirs = _each_its_own(channel, index, values, sizes_N2)
    index_out = channel.buffer("index of sum", active.sparse_index_room(words, unit), np.uint8)
    values_out = channel.buffer("values of sum", words, x.dtype)
    size = active.compact_sum(theirs, words, unit, index_out, values_out)
    sums = _everyone(channel, index_out[: size[0]], values_out[: size[1]])
    for segment, (start, end) in enumerate(pairwise(bounds.tolist())):
        i, v = (bounds[segment : segment + 2] for bounds in (sums.index_bounds, sums.value_bounds))
        part = SparseParts(sums.indices[i[0] : i[1]], i - i[0], sums.values[v[0] : v[1]], v - v[0])
        active.place_sum(part, unit, x[start:end])


def _compact(
    channel: Channel, x: Values, bounds: Ints, unit: int, piece: int = 0
) -> tuple[Bytes, Values, Ints]:
    """Index and values of all segments, back to back, and their sizes."""
    active = kernels.active()
    room = sum(active.sparse_index_room(int(words), unit) for words in np.diff(bounds))
    index = channel.buffer(f"index {piece}", room, np.uint8)
    values = channel.buffer(f"values {piece}", len(x), x.dtype)
    sizes_N2 = np.empty((len(bounds) - 1, 2), np.int64)
    active.compact(x, bounds, unit, index, values, sizes_N2)
    return index[: sizes_N2[:, 0].sum()], values[: sizes_N2[:, 1].sum()], sizes_N2


def _everyone(channel: Channel, index: Bytes, values: Values, piece: int = 0) -> SparseParts:
    """All ranks' index and values, given this rank's."""
    messages = [channel.to_all(index), channel.to_all(values)]
    coming_N2 = channel.announce_to_all(len(index), len(values), messages=messages)
    heard_index, heard_values = _room_for(channel, coming_N2, values.dtype, piece)
    channel.receive(heard_index, np.ascontiguousarray(coming_N2[:, 0]))
    channel.receive(heard_values, np.ascontiguousarray(coming_N2[:, 1]))
    return SparseParts(heard_index, bounds_of(coming_N2[:, 0]), heard_values, bounds_of(coming_N2[:, 1]))


def _each_its_own(channel: Channel, index: Bytes, values: Values, sizes_N2: Ints) -> SparseParts:
    """Hear what all ranks have for this one, given what this one has for each."""
    messages = (
        Message.each(own, np.ascontiguousarray(sizes_N2[:, k])) for k, own in enumerate((index, values))
    )
    coming_N2 = channel.announce(sizes_N2, *messages)
    heard = _room_for(channel, coming_N2, values.dtype)
    for k in (0, 1):
        channel.receive(heard[k], np.ascontiguousarray(coming_N2[:, k]))
    return SparseParts(heard[0], bounds_of(coming_N2[:, 0]), heard[1], bounds_of(coming_N2[:, 1]))


def _room_for(channel: Channel, coming_N2: Ints, dtype: Any, piece: int = 0) -> tuple[Bytes, Values]:
    index_bytes, words = coming_N2.sum(0).tolist()
    heard = channel.buffer(f"heard index {piece}", index_bytes, np.uint8)
    return heard, channel.buffer(f"heard values {piece}", words, dtype)


def _share(there_W: NDArray[np.bool_], unit: int) -> float:
    units = np.logical_or.reduceat(there_W, np.arange(0, len(there_W), unit)) if len(there_W) else there_W
    return float(units.mean()) if len(units) else 0.0
