"""Messages whose receives are posted before anybody knows how long they will be.

gloo sends nothing until the receiver has said where to. If that waits for the size, every exchange is two, sizes and
then bytes, each with threads to be woken on a busy core. So a generous receive is always posted, and all that a rank has
to say to another in a turn, sizes and bytes, comes as one message that fills the beginning of it: gloo takes a shorter
message than was asked for (``tests/distributed/test_ahead.py`` would notice if it did not). How long the receive is
both ends know by the messages before; what goes beyond follows by itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from laconic.exchange.lost_peer import lost_peer
from laconic.exchange.wire import Receive

__all__ = ["Ahead"]

Bytes = NDArray[np.uint8]
Ints = NDArray[np.int64]
Values = NDArray[Any]
_FIRST, _REST = 1, 2  # tags; what is sent without an announcement has another
_LEAST, _MOST = 1 << 16, 1 << 22  # bytes of a receive, and of those from all ranks together


class Ahead:
    """What one rank says to all others of a process group, turn by turn."""

    def __init__(self, rank: int, ranks: int, group: Any) -> None:
        self._rank, self._group = rank, group
        self._most = max(_LEAST, _MOST // ranks)
        # everybody sends to somebody else first
        self._targets = [(rank + distance) % ranks for distance in range(1, ranks)]
        self._sources = [(rank - distance) % ranks for distance in range(1, ranks)]
        self._sent = {target: np.empty(_LEAST, np.uint8) for target in self._targets}
        self._heard = {source: np.empty(_LEAST, np.uint8) for source in self._sources}
        self._receives: dict[int, Any] = {}
        self._taken: dict[int, int] = {}  # bytes of this turn, so far
        self._sends: list[Any] = []

    def tell(
        self, heads_NH: Ints, messages: Sequence[tuple[Values, Ints]], where: str
    ) -> tuple[Ints, list[Receive]]:
        """Send every rank its head and its part of each message; return all heads, and what takes each message."""
        try:
            if not self._receives:
                self._post_receives()
            every = [(heads_NH.reshape(-1), np.full(len(heads_NH), heads_NH.shape[1])), *messages]
            rests = self._send(every)
            self._taken = dict.fromkeys(self._sources, 0)
            for source in self._sources:
                self._receives[source].wait()
            heard_NH = heads_NH.copy()
            self._take(heard_NH.reshape(-1), every[0][1], rests[0])
            if not messages:
                self._end()
        except RuntimeError as error:
            raise lost_peer(where, self._rank, error) from error

        def receive(k: int, heard: Values, coming_N: Ints) -> None:
            try:
                self._take(heard, coming_N, rests[k])
                if k == len(messages):
                    self._end()
            except RuntimeError as error:
                raise lost_peer(where, self._rank, error) from error

        return heard_NH, [partial(receive, 1 + k) for k in range(len(messages))]

    def _send(self, messages: Sequence[tuple[Values, Ints]]) -> list[list[tuple[int, Bytes]]]:
        """Send what is expected to each rank; return what goes beyond, of every message."""
        rests: list[list[tuple[int, Bytes]]] = [[] for _ in messages]
        for target in self._targets:
            room, at, total = self._sent[target], 0, 0
            for rest, message in zip(rests, messages, strict=True):
                part = _part(*message, target)
                first = part[: len(room) - at]
                room[at : at + len(first)] = first
                at, total = at + len(first), total + len(part)
                if len(first) < len(part):
                    rest.append((target, part[len(first) :]))
            self._sends.append(self._group.send([torch.from_numpy(room[:at])], target, _FIRST))
            self._sent[target] = self._grown(room, total)
        return rests

    def _take(self, heard: Values, coming_N: Ints, rest: list[tuple[int, Bytes]]) -> None:
        """Fill ``heard`` with the next values of all ranks; send what is left of this rank's."""
        works = []
        for source in self._sources:
            out, room, at = _part(heard, coming_N, source), self._heard[source], self._taken[source]
            here = max(min(len(out), len(room) - at), 0)
            out[:here] = room[at : at + here]
            self._taken[source] = at + len(out)
            if here < len(out):  # before the send, or gloo uses the link in one direction at a time
                works.append(self._group.recv([torch.from_numpy(out[here:])], source, _REST))
        works += [self._group.send([torch.from_numpy(part)], target, _REST) for target, part in rest]
        for work in works:
            work.wait()

    def _end(self) -> None:
        for work in self._sends:
            work.wait()
        self._sends.clear()
        for source in self._sources:
            self._heard[source] = self._grown(self._heard[source], self._taken[source])
        try:
            self._post_receives()
        except RuntimeError:
            # a peer has left. This turn is whole, and may have been the last; another will say so
            self._receives.clear()

    def _post_receives(self) -> None:
        for source in self._sources:
            room = torch.from_numpy(self._heard[source])
            self._receives[source] = self._group.recv([room], source, _FIRST)

    def _grown(self, room: Bytes, total: int) -> Bytes:
        """Memory for the next message, if one like the last would not fit well; both ends come to the same size."""
        size = min(-(-total * 5 // 4 // _LEAST) * _LEAST, self._most)
        return np.empty(size, np.uint8) if size > len(room) else room


def _part(values: Values, sizes_N: Ints, rank: int) -> Bytes:
    start = int(sizes_N[:rank].sum())
    return values[start : start + int(sizes_N[rank])].view(np.uint8)
