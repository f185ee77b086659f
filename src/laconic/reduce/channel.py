"""What every way of summing uses: a transport, memory by name, and a thread, for one sum after the other.

Every round of messages says which sum it belongs to and what that is, so that ranks that sum
different things all raise, and none hangs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from time import perf_counter
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from laconic.exchange.transport import Buffers, Head, Message, Transport
from laconic.exchange.worker import Worker

__all__ = ["Channel"]

Ints = NDArray[np.int64]
Values = NDArray[Any]
Result = TypeVar("Result")


class Channel:
    """One rank's end; all ranks use theirs in the same order."""

    def __init__(self, transport: Transport) -> None:
        self.transport = transport
        self.rank, self.ranks = transport.rank, transport.ranks
        self.receive, self.swap = transport.receive, transport.swap
        self._turn, self._digest, self._elsewhere = 0, 0, 0
        self.encode_s = 0.0
        """Seconds from the begin of each sum to its first message, so far."""
        self._began_s: float | None = None
        self._buffers = Buffers()
        self._worker: Worker | None = None

    @property
    def bytes_sent(self) -> int:
        """By this rank for sums, so far."""
        return self.transport.bytes_sent + self._elsewhere

    def count(self, nbytes: int) -> None:
        """Add bytes that left by another way, or take off some that were for no sum."""
        self._elsewhere += nbytes

    def begin(self, digest: int) -> None:
        """Go on to the next sum; ``digest`` stands for all that must be the same on every rank."""
        self._turn += 1
        self._digest = digest
        self._began_s = perf_counter()

    def buffer(self, name: str, count: int, dtype: Any) -> Values:
        """Memory of this name, overwritten every time it is asked for."""
        return self._buffers.reserve(name, count, dtype)

    def later(self, task: Callable[..., Result], *args: Any) -> Future[Result]:
        """Do this in a thread of its own, after what was asked before; nothing else may use the channel meanwhile."""
        if self._worker is None:
            self._worker = Worker("laconic-all-reduce")
        return self._worker.submit(task, *args)

    def announce(self, numbers_NK: Ints, *messages: Message) -> Ints:
        """Tell each rank K numbers, and hear those of each; messages leave at once, to be received in the same order."""
        if self._began_s is not None:
            self.encode_s += perf_counter() - self._began_s
            self._began_s = None
        head = Head(self._turn, self._digest, 0, numbers_NK, np.zeros_like(numbers_NK))
        return self.transport.announce(head, *messages).counts_NK

    def announce_to_all(self, *numbers: int, messages: Sequence[Message] = ()) -> Ints:
        """Tell every rank the same."""
        return self.announce(np.tile(np.array(numbers, np.int64), (self.ranks, 1)), *messages)

    def to_all(self, values: Values) -> Message:
        """Make a message of the same values for all ranks."""
        return Message.same(values, self.ranks)

    def close(self) -> None:
        """End the thread and leave."""
        if self._worker is not None:
            self._worker.close()
        self.transport.close()
