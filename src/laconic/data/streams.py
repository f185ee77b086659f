"""Streams: how an epoch of files is divided, so that every rank reads its share.

Row groups lie end to end in an order that is drawn for each epoch. This sequence of samples is cut
into ``S`` *streams* of equal length. A global batch takes its samples from all streams in turn, and
rank ``r`` of ``N`` reads the ``S / N`` streams that are its own::

    stream     0        1        2        3           rank 0 reads 0 and 1, rank 1 reads 2 and 3
             ------>|<------|------>|<------
    groups   |  a  |  b  |  c  |  d  |  e  |

Batches depend on ``S`` and in no other way on ``N``. A batch has the samples of stream 0 first,
then those of stream 1, so that the parts of ranks, one after the other, are the batch.

Every other stream is read from its end. A row group that two streams share is then needed by both
at the same time, and a rank that has both decodes it once. The streams give a sample each in an
order in which any ``N`` of them that follow each other belong to all ``N`` ranks. So ranks get
equally many samples of a batch, or one more or less where it cannot be divided.

Shape legend: ``S`` streams.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

__all__ = ["Segment", "Streams", "stream_count"]

Ints = NDArray[np.int64]


def stream_count(ranks: int, least: int) -> int:
    """Return the number of streams for so many ranks: their odd part, doubled to ``least`` or more.

    All numbers of ranks with the same odd part that are no larger than that have the same streams.
    """
    odd = ranks // (ranks & -ranks)
    count = odd
    while count < max(least, ranks):
        count *= 2
    return count


@dataclass(frozen=True, slots=True)
class Segment:
    """Samples of a stream that are in one row group."""

    group: int
    """Place of the row group in the order of the epoch."""
    first: int
    """First sample of the stream that is in it."""
    samples: int
    begin: int
    """Where in the row group they begin; if it is turned, where they end."""
    turned: bool
    """Whether they are read from their end."""

    def after(self, taken: int) -> Segment:
        """Return what is left of it once so many samples of the stream were taken."""
        gone = min(max(taken - self.first, 0), self.samples)
        begin = self.begin + (-gone if self.turned else gone)
        return Segment(self.group, self.first + gone, self.samples - gone, begin, self.turned)


@dataclass(frozen=True, slots=True)
class Streams:
    """The streams of an epoch."""

    samples: int
    """Of the epoch, in all streams."""
    count: int
    turned: bool = True
    """Whether every other stream is read from its end."""
    _place_S: Ints = field(init=False, repr=False)
    _begin_S: Ints = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_place_S", _places(self.count))
        lengths_S = self.taken(self.samples, 0, self.count)
        object.__setattr__(self, "_begin_S", np.cumsum(lengths_S) - lengths_S)

    def of(self, rank: int, ranks: int) -> range:
        """Return the streams of a rank."""
        return range(rank * self.count // ranks, (rank + 1) * self.count // ranks)

    def taken(self, position: int, first: int, last: int) -> Ints:
        """Return how many samples streams ``first`` to ``last`` have given after ``position``."""
        turns, rest = divmod(position, self.count)
        taken_S: Ints = turns + (self._place_S[first:last] < rest).astype(np.int64)
        return taken_S

    def position(self, stream: int, sample: int) -> int:
        """Return the place in the epoch of a sample of a stream."""
        return sample * self.count + int(self._place_S[stream])

    def segments(self, stream: int, begins: Ints) -> list[Segment]:
        """Return the parts of a stream by row group, as it is read; ``begins``: where groups begin.

        The last of ``begins`` is where the last group ends.
        """
        begin = int(self._begin_S[stream])
        end = begin + int(self.taken(self.samples, stream, stream + 1)[0])
        turned = self.turned and stream % 2 == 1
        found = []
        for group in range(np.searchsorted(begins, begin, side="right") - 1, len(begins) - 1):
            at, after = int(begins[group]), int(begins[group + 1])
            if at >= end:
                break
            low, high = max(at, begin), min(after, end)
            if low < high and turned:
                found.append(Segment(group, end - high, high - low, high - at, True))
            elif low < high:
                found.append(Segment(group, low - begin, high - low, low - at, False))
        return found[::-1] if turned else found


def _places(count: int) -> Ints:
    """Return the place of each stream in the order in which they give a sample each.

    With ``odd`` parts of ``2 ** bits`` streams: place ``u + odd * w`` is that of stream ``w``,
    its bits reversed, of part ``u``. So ``odd * 2 ** i`` places in a row are of as many ranks.
    """
    half = count & -count
    odd, bits = count // half, half.bit_length() - 1
    place = np.arange(count, dtype=np.int64)
    part, within = place % odd, place // odd
    turned = np.zeros_like(within)
    for bit in range(bits):
        turned |= ((within >> bit) & 1) << (bits - 1 - bit)
    place_S = np.empty(count, np.int64)
    place_S[part * half + turned] = place
    return place_S
