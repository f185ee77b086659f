"""Arrays of announced sizes between all ranks, for one reduction after the other.

Every round of messages says which reduction it belongs to and what that is, so that ranks that reduce
different things all raise, and none hangs.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from laconic.collectives.coder import Room
from laconic.collectives.wire import Wire, size_message_bytes
from laconic.collectives.worker import Worker

__all__ = ["Parcels", "bounds_of", "even_bounds"]

Ints = NDArray[np.int64]
Values = NDArray[Any]
Result = TypeVar("Result")


class Parcels:
    """One wire and the memory for what comes and goes."""

    def __init__(self, wire: Wire) -> None:
        self.wire = wire
        self.rank, self.ranks = wire.rank, wire.ranks
        self.bytes_sent = 0
        self.turn = 0
        self._digest = 0
        self._rooms: dict[str, Room] = {}
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

    def announce(self, numbers_NK: Ints) -> Ints:
        """Tell each rank K numbers, and hear those of each."""
        none = np.zeros_like(numbers_NK)
        self.bytes_sent += size_message_bytes(numbers_NK.shape[1], self.ranks)
        return self.wire.announce(self.turn, self._digest, 0, numbers_NK, none).counts_NK

    def announce_to_all(self, *numbers: int) -> Ints:
        """Tell every rank the same."""
        return self.announce(np.tile(np.array(numbers, np.int64), (self.ranks, 1)))

    def swap(self, heard: Values, out: Values, coming_N: Ints, sent_N: Ints) -> None:
        """Send ``sent_N[r]`` values to every rank r, in order, and hear theirs; what is for this rank is copied."""
        at, to = int(sent_N[: self.rank].sum()), int(coming_N[: self.rank].sum())
        heard[to : to + coming_N[self.rank]] = out[at : at + sent_N[self.rank]]
        self._send(heard, out, coming_N, sent_N)

    def _send(self, heard: Values, out: Values, coming_N: Ints, sent_N: Ints) -> None:
        self.bytes_sent += int(sent_N.sum() - sent_N[self.rank]) * out.itemsize
        self.wire.move(out, heard, sent_N, coming_N, self.turn)

    def spread(self, own: Values, heard: Values, coming_N: Ints) -> None:
        """Send the same to all ranks; ``heard`` gets what every rank sent, this one included."""
        start = int(coming_N[: self.rank].sum())
        heard[start : start + len(own)] = own
        sent_N = np.full(self.ranks, len(own))
        sent_N[self.rank] = 0
        copies = own
        if self.ranks > 2:
            copies = self.room("copies", (self.ranks - 1) * len(own), own.dtype)
            copies.reshape(self.ranks - 1, -1)[:] = own
        self._send(heard, copies, coming_N, sent_N)


def bounds_of(sizes: Ints) -> Ints:
    """Where parts of these sizes begin, back to back, and the last ends."""
    return np.concatenate([[0], np.cumsum(sizes)])


def even_bounds(words: int, parts: int, multiple: int = 1) -> Ints:
    """Cut so many words into parts that differ by at most ``multiple``, at multiples of it."""
    units = -(-words // multiple)
    return np.minimum(np.arange(parts + 1) * units // parts * multiple, words)
