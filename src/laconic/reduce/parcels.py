"""Arrays of announced sizes between all ranks, for one reduction after the other.

Every round of messages says which reduction it belongs to and what that is, so that ranks that reduce
different things all raise, and none hangs.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from laconic.cost.link import message_bytes
from laconic.exchange.coder import Room
from laconic.exchange.wire import Wire
from laconic.exchange.worker import Worker

__all__ = ["Message", "Parcels", "bounds_of"]

Ints = NDArray[np.int64]
Values = NDArray[Any]
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Message:
    """Values for every rank."""

    out: Values
    sent_N: Ints
    own: Values
    """What this rank has for itself."""


class Parcels:
    """One wire and the memory for what comes and goes."""

    def __init__(self, wire: Wire) -> None:
        self.wire = wire
        self.rank, self.ranks = wire.rank, wire.ranks
        self.bytes_sent = 0
        self.turn = 0
        self._digest = 0
        self._rooms: dict[str, Room] = {}
        self._kept: deque[Values] = deque()  # what this rank keeps of each message under way
        self._worker: Worker | None = None

    def begin(self, digest: int) -> None:
        """Go on to the next reduction; ``digest`` stands for all that must be the same on every rank."""
        self.turn += 1
        self._digest = digest

    def room(self, name: str, count: int, dtype: Any) -> Values:
        """Memory of this name, overwritten every time it is asked for."""
        size = count * np.dtype(dtype).itemsize
        return self._rooms.setdefault(name, Room()).take(size).view(dtype)

    def later(self, task: Callable[..., Result], *args: Any) -> Future[Result]:
        """Do this in a thread of its own, after what was asked before; nothing else may use the wire meanwhile."""
        if self._worker is None:
            self._worker = Worker("laconic-all-reduce")
        return self._worker.submit(task, *args)

    def close(self) -> None:
        """Leave the wire."""
        if self._worker is not None:
            self._worker.close()
        self.wire.close()

    def announce(self, numbers_NK: Ints, *messages: Message) -> Ints:
        """Tell each rank K numbers, and hear those of each; messages leave at once, to be taken in the same order."""
        none = np.zeros_like(numbers_NK)
        self.bytes_sent += message_bytes(numbers_NK.shape[1], self.ranks)
        posted = [self._count(message) for message in messages]
        return self.wire.announce(self.turn, self._digest, 0, numbers_NK, none, *posted).counts_NK

    def announce_to_all(self, *numbers: int, messages: Sequence[Message] = ()) -> Ints:
        """Tell every rank the same."""
        return self.announce(np.tile(np.array(numbers, np.int64), (self.ranks, 1)), *messages)

    def for_each(self, out: Values, sent_N: Ints) -> Message:
        """Make a message of ``sent_N[r]`` values for every rank r, in order."""
        at = int(sent_N[: self.rank].sum())
        return Message(out, sent_N, out[at : at + sent_N[self.rank]])

    def for_all(self, own: Values, name: str = "") -> Message:
        """Make a message of the same values for all ranks; those that are under way at a time differ in ``name``."""
        return replace(self.for_others(own, name), own=own)

    def for_others(self, own: Values, name: str = "") -> Message:
        """Make a message of the same values for all ranks but this one."""
        sent_N = np.full(self.ranks, len(own))
        sent_N[self.rank] = 0
        copies = own
        if self.ranks > 2:
            copies = self.room(f"copies {name}", (self.ranks - 1) * len(own), own.dtype)
            copies.reshape(self.ranks - 1, -1)[:] = own
        return Message(copies, sent_N, own[:0])

    def take(self, heard: Values, coming_N: Ints) -> None:
        """Fill ``heard`` with what every rank sent of the message that was announced, this one included."""
        self._keep(heard, coming_N)
        self.wire.receive(heard, coming_N)

    def swap(self, heard: Values, message: Message, coming_N: Ints) -> None:
        """Send a message whose sizes all ranks know, and hear theirs."""
        out, sent_N = self._count(message)
        self._keep(heard, coming_N)
        self.wire.move(out, heard, sent_N, coming_N, self.turn)

    def _count(self, message: Message) -> tuple[Values, Ints]:
        sent = int(message.sent_N.sum() - message.sent_N[self.rank])
        self.bytes_sent += sent * message.out.itemsize
        self._kept.append(message.own)
        return message.out, message.sent_N

    def _keep(self, heard: Values, coming_N: Ints) -> None:
        start, own = int(coming_N[: self.rank].sum()), self._kept.popleft()
        heard[start : start + len(own)] = own


def bounds_of(sizes: Ints) -> Ints:
    """Where parts of these sizes begin, back to back, and the last ends."""
    return np.concatenate([[0], np.cumsum(sizes)])
