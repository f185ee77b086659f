"""Messages whose receives are posted before anybody knows how long they will be.

gloo sends nothing until the receiver has said where to. If that waits for the size, every exchange
is two, sizes and then bytes, each with threads to be woken on a busy core. So a generous receive is
always posted, and all that a rank has to say to another in a turn, head and messages, comes as one
that fills the beginning of it: gloo takes a shorter message than was asked for
(``tests/distributed/test_posted.py`` would notice if it did not). Both ends know by the messages
before how long the receive is; what goes beyond follows by itself.

Messages of known sizes are sends and receives too: gloo's own all-to-all uses a link in one
direction at a time (3.4 MB each way between two hosts at 200 Mbit/s: 298 ms, against 148 ms for
these and 136 ms for the bare link).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from laconic.exchange.ranks.mesh import TAGS, timeout_of
from laconic.exchange.ranks.transport import Message, Transport

__all__ = ["PostedTransport", "receive_bytes"]

Bytes = NDArray[np.uint8]
Ints = NDArray[np.int64]
Values = NDArray[Any]
_SWAPPED, _FIRST, _REST = range(TAGS)
_LEAST, _USUAL, _MOST = 1 << 12, 1 << 16, 1 << 22
"""Bytes of a receive: the least, the usual least, and the most of those from all ranks together."""


def receive_bytes(ranks: int) -> tuple[int, int]:
    """Return bytes of the receive that is posted for each other rank: at first, and at most.

    A rank has as many bytes again for each, to send from.
    """
    most = max(_LEAST, _MOST // ranks)
    return min(_USUAL, most), most


class PostedTransport(Transport):
    """The ranks of a process group, by sends and receives whose tags nobody else uses."""

    def __init__(self, name: str, rank: int, ranks: int, group: Any, tags: int) -> None:
        """``tags``: the first of its own."""
        super().__init__(name, rank, ranks)
        self._group = group
        self._swapped, self._first, self._rest = tags + _SWAPPED, tags + _FIRST, tags + _REST
        self._unit, self._most = receive_bytes(ranks)
        # everybody sends to somebody else first
        self._targets = [(rank + distance) % ranks for distance in range(1, ranks)]
        self._sources = [(rank - distance) % ranks for distance in range(1, ranks)]
        self._outgoing = {target: np.empty(self._unit, np.uint8) for target in self._targets}
        self._incoming = {source: np.empty(self._unit, np.uint8) for source in self._sources}
        self._receives: dict[int, Any] = {}
        self._taken: dict[int, int] = {}  # bytes of this turn, so far
        self._sends: list[Any] = []
        self._rests: deque[list[tuple[int, Bytes]]] = deque()  # of every message, what is still to be sent

    def close(self) -> None:
        """Wait for no more messages; the connections are there for other transports."""
        self._receives.clear()

    def _send(self, messages: tuple[Message, ...]) -> None:
        if not self._receives:
            self._post_receives()
        self._rests = deque([] for _ in messages)
        self._taken = dict.fromkeys(self._sources, 0)
        for target in self._targets:
            self._send_to(target, [message.part(target).view(np.uint8) for message in messages])

    def _send_to(self, target: int, parts: Sequence[Bytes]) -> None:
        """Send what a rank is ready for, and note what goes beyond."""
        buffer, at = self._outgoing[target], 0
        for rest, part in zip(self._rests, parts, strict=True):
            first = part[: len(buffer) - at]
            buffer[at : at + len(first)] = first
            at += len(first)
            if len(first) < len(part):
                rest.append((target, part[len(first) :]))
        self._sends.append(self._group.send([torch.from_numpy(buffer[:at])], target, self._first))
        self._outgoing[target] = self._grown(buffer, sum(map(len, parts)))

    def _arrive(self) -> None:
        for source in self._sources:
            self._wait(self._receives[source])

    def _receive(self, out: Values, sizes_N: Ints) -> None:
        works = []
        starts_N = np.cumsum(sizes_N) - sizes_N
        for source in self._sources:
            start = int(starts_N[source])
            part = out[start : start + int(sizes_N[source])].view(np.uint8)
            buffer, at = self._incoming[source], self._taken[source]
            here = max(min(len(part), len(buffer) - at), 0)
            part[:here] = buffer[at : at + here]
            self._taken[source] = at + len(part)
            if here < len(part):  # before the send, or gloo uses the link in one direction at a time
                works.append(self._group.recv([torch.from_numpy(part[here:])], source, self._rest))
        for target, left in self._rests.popleft():
            works.append(self._group.send([torch.from_numpy(left)], target, self._rest))
        for work in works:
            self._wait(work)
        if not self._rests:
            self._end()

    def _end(self) -> None:
        """Be ready for the next turn."""
        for work in self._sends:
            self._wait(work)
        self._sends.clear()
        for source in self._sources:
            self._incoming[source] = self._grown(self._incoming[source], self._taken[source])
        try:
            self._post_receives()
        except RuntimeError:
            # a peer has left. This turn is whole, and may have been the last; another will say so
            self._receives.clear()

    def _post_receives(self) -> None:
        for source in self._sources:
            buffer = torch.from_numpy(self._incoming[source])
            self._receives[source] = self._group.recv([buffer], source, self._first)

    def _begin_swap(self, out: Values, message: Message, sizes_N: Ints) -> Callable[[], None]:
        """Empty parts do not travel.

        A receive comes before the send, or gloo uses the link in one direction at a time. The calls
        are what ``dist.isend`` and ``dist.irecv`` come to, which take as long again for checks.
        """
        works: list[Any] = []
        heard = np.split(out, np.cumsum(sizes_N)[:-1])
        for source, target in zip(self._sources, self._targets, strict=True):
            if heard[source].size:
                works.append(self._group.recv([torch.from_numpy(heard[source])], source, self._swapped))
            if (part := message.part(target)).size:
                works.append(self._group.send([torch.from_numpy(part)], target, self._swapped))

        def end() -> None:
            for work in works:
                self._wait(work)

        return end

    def _wait(self, work: Any) -> None:
        if self.patience_s is None:
            work.wait()
        else:
            work.wait(max(timedelta(seconds=self.patience_s), timeout_of(self._group)))

    def _grown(self, buffer: Bytes, total: int) -> Bytes:
        """Return memory for the next message, if one like the last would not fit well.

        Both ends come to the same size.
        """
        size = min(-(-total * 5 // 4 // self._unit) * self._unit, self._most)
        return np.empty(size, np.uint8) if size > len(buffer) else buffer
