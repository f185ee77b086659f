"""Reads the streams of one rank: decodes row groups ahead, and gathers batches from many at once.

A rank holds the row group that each of its streams is in, and a few that come next, in *slots* of
one large block, its samples in the order in which they will be asked for. So a batch is a run of
samples from each stream. A thread decodes in the order in which batches will ask, as far as slots
are free: memory is bounded by ``streams + ahead`` row groups of the largest size.

Samples of a row group are shuffled among themselves. With the order of the row groups and as many
of them at a time as all ranks have streams, that is how random an epoch is.

Shape legend: ``S`` streams of this rank, ``R`` runs of samples.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from laconic.data.sample_block import BagColumn, SampleBlock, SpareBlock
from laconic.data.streams import Segment, Streams

__all__ = ["StreamReader"]

Ints = NDArray[np.int64]
Decode = Callable[[int, SampleBlock], dict[int, BagColumn]]

_AHEAD = 2  # row groups beside one for each stream, at the least
_AHEAD_SHARE = 8  # and one more for so many streams


@dataclass(slots=True)
class _Held:
    """A row group in a slot."""

    base: int
    """First sample of the slot."""
    bags: dict[int, BagColumn]


class StreamReader:
    """Yields the samples of some streams, batch by batch; ``close`` ends its thread."""

    def __init__(
        self, streams: Streams, own: range, begins: Ints, largest: int, memory: SpareBlock, decode: Decode
    ) -> None:
        """``begins``: where row groups begin in the epoch, and the last ends.

        ``largest``: samples of the largest. ``memory``: what slots are borrowed from until the end.
        ``decode`` fills a block with the samples of the row group at a place in the epoch's order,
        and returns their bags.
        """
        self._streams, self._own, self._begins, self._decode = streams, own, begins, decode
        self._memory, self._empty, self._largest = memory, memory.empty, largest
        self._held: dict[int, _Held] = {}
        self._coming: dict[int, Future[_Held]] = {}
        self._due: deque[int] = deque()
        self._users: dict[int, int] = {}
        """Streams that still need a row group."""
        self._free: list[int] = []
        self._spent: list[int] = []
        self._block = memory.empty
        """All slots."""
        self._segments: list[deque[Segment]] = []
        self._at_S, self._left_S, self._turned_S = (np.zeros(len(own), np.int64) for _ in range(3))
        """Where in the block each stream is, samples left in its segment, 1: read from its end."""
        self._thread = ThreadPoolExecutor(1, "laconic-data")

    def batches(self, start: int, global_batch: int) -> Iterator[SampleBlock]:
        """Yield this rank's part of every global batch from sample ``start`` of the epoch on."""
        own = (self._own.start, self._own.stop)
        try:
            self._begin(start, global_batch)
            position, taken_S = start, self._streams.taken(start, *own)
            while position < self._streams.samples:
                position = min(position - position % global_batch + global_batch, self._streams.samples)
                before_S, taken_S = taken_S, self._streams.taken(position, *own)
                yield self._gather(taken_S - before_S)
        finally:
            self.close()

    def close(self) -> None:
        """Decode no more, and give the memory back."""
        self._thread.shutdown(wait=True, cancel_futures=True)
        block, self._block = self._block, self._empty
        self._memory.give_back(block)

    def _begin(self, start: int, global_batch: int) -> None:
        """Find what is to be decoded, in which order, and begin with it."""
        needed: dict[int, tuple[int, int, int]] = {}
        for s, stream in enumerate(self._own):
            taken = int(self._streams.taken(start, stream, stream + 1)[0])
            segments = [each.after(taken) for each in self._streams.segments(stream, self._begins)]
            self._segments.append(deque(each for each in segments if each.samples))
            for number, each in enumerate(self._segments[-1]):
                self._users[each.group] = self._users.get(each.group, 0) + 1
                when = (self._streams.position(stream, each.first) // global_batch, s, number)
                needed[each.group] = min(needed.get(each.group, when), when)
        self._due.extend(sorted(needed, key=lambda group: needed[group]))
        ahead = max(_AHEAD, len(self._own) // _AHEAD_SHARE)
        slots = min(len(self._own) + ahead, len(self._due))
        self._block = self._memory.borrow(slots * self._largest)
        self._free = [slot * self._largest for slot in range(slots)]
        self._decode_ahead()

    def _decode_ahead(self) -> None:
        while self._free and self._due:
            group, base = self._due.popleft(), self._free.pop()
            self._coming[group] = self._thread.submit(self._load, group, base)

    def _load(self, group: int, base: int) -> _Held:
        return _Held(base, self._decode(group, self._block.part(base, base + self._largest)))

    def _gather(self, count_S: Ints) -> SampleBlock:
        """Take so many samples of each stream."""
        if (count_S <= self._left_S).all():
            return self._take(self._advance(np.arange(len(count_S)), count_S), count_S)
        parts: list[SampleBlock] = []
        starts: list[int] = []
        counts: list[int] = []
        for s, count in enumerate(count_S.tolist()):
            while count:
                if not self._left_S[s] and not self._enter(s):
                    parts.append(self._take(np.array(starts, np.int64), np.array(counts, np.int64)))
                    starts, counts = [], []  # so that slots become free
                    self._enter(s)
                here = min(count, int(self._left_S[s]))
                starts += self._advance(np.array([s]), np.array([here])).tolist()
                counts.append(here)
                count -= here  # noqa: PLW2901
        parts.append(self._take(np.array(starts, np.int64), np.array(counts, np.int64)))
        return SampleBlock.join([part for part in parts if part.label_N.size] or [self._empty])

    def _advance(self, s_R: Ints, count_R: Ints) -> Ints:
        """Return where the next samples of some streams begin, and go on to those after them."""
        turned_R = self._turned_S[s_R]
        begin_R: Ints = self._at_S[s_R] - turned_R * count_R
        self._at_S[s_R] = begin_R + (1 - turned_R) * count_R
        self._left_S[s_R] -= count_R
        for s in s_R[(self._left_S[s_R] == 0) & (count_R > 0)].tolist():
            self._leave(s)
        return begin_R

    def _enter(self, s: int) -> bool:
        """Go on to the next segment of a stream; False if its row group has no slot yet."""
        segment = self._segments[s][0]
        held = self._held.get(segment.group)
        if held is None:
            if segment.group not in self._coming:
                return False
            held = self._held[segment.group] = self._coming.pop(segment.group).result()
        self._turned_S[s], self._left_S[s] = segment.turned, segment.samples
        self._at_S[s] = held.base + segment.begin
        return True

    def _leave(self, s: int) -> None:
        group = self._segments[s].popleft().group
        self._users[group] -= 1
        if not self._users[group]:
            self._spent.append(group)

    def _take(self, begin_R: Ints, count_R: Ints) -> SampleBlock:
        """Copy runs of samples, and make room for what comes next."""
        if not len(begin_R):
            return self._empty
        taken = self._block.runs(begin_R, count_R)
        if self._empty.bags:
            self._take_bags(taken, begin_R, count_R)
        for group in self._spent:
            self._free.append(self._held.pop(group).base)
        self._spent.clear()
        self._decode_ahead()
        return taken

    def _take_bags(self, taken: SampleBlock, begin_R: Ints, count_R: Ints) -> None:
        by_base = {held.base: held for held in self._held.values()}
        parts: dict[int, list[BagColumn]] = {table: [none] for table, none in self._empty.bags.items()}
        for begin, count in zip(begin_R.tolist(), count_R.tolist(), strict=True):
            base = begin // self._largest * self._largest
            index = np.arange(begin - base, begin - base + count)
            if count:
                for table, bags in by_base[base].bags.items():
                    parts[table].append(bags.take(index))
        taken.bags.update({table: BagColumn.join(of_table) for table, of_table in parts.items()})
