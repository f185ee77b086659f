"""Bytes between ranks: the sizes of all blocks of a direction, and with them the bytes.

The size message from one rank to another, int64::

    turn   plan digest   samples   counts of K blocks   bytes of K blocks

It is checked before data is taken: ranks that disagree about the turn or the plan all raise, none
hangs. What it announces leaves with it, so nobody's bytes wait for the sizes of a slower rank. One thread uses
a wire, so that the order of its messages is the same on every rank; what carries them is in ``world``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from time import perf_counter
from typing import Any

import numpy as np
import torch.distributed as dist
from numpy.typing import NDArray

from laconic.cost.link import HEADER_NUMBERS as _HEADER
from laconic.errors import CommError

__all__ = ["Receive", "Sizes", "Swap", "Tell", "Wire", "even_bounds"]

Ints = NDArray[np.int64]
Values = NDArray[Any]
Swap = Callable[[Values, Values, Ints, Ints, str], None]
"""``swap(heard, out, coming_N, sent_N, where)``: ``out`` holds ``sent_N[r]`` values for every rank r, in order, and
``heard`` gets ``coming_N[r]`` from each; none go to this rank itself, though it may have some in both."""
Receive = Callable[[Values, Ints], None]
"""``receive(heard, coming_N)``: the part of a swap that is left when the values are under way."""
Tell = Callable[[Ints, Sequence[tuple[Values, Ints]], str], tuple[Ints, list[Receive]]]
"""``tell(heads_NH, messages, where)``: send every rank its head and its part of each message; returns the heads of all,
and what receives each message."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """What all ranks announced to this one."""

    samples_N: Ints
    counts_NK: Ints
    bytes_NK: Ints


@dataclass
class Wire:
    """All ranks, as one of them reaches the others for one purpose."""

    name: str
    rank: int
    ranks: int
    swap: Swap
    tell: Tell | None = None
    """Heads and messages at once, if the carrier has a way; otherwise they are swapped one by one."""
    group: Any = None
    """Process group that carries the messages, if one does."""
    waited_s: float = 0.0
    """Time spent in messages since ``take_time``."""
    _posted: deque[Receive] = field(default_factory=deque)

    def announce(
        self,
        turn: int,
        digest: int,
        samples: int,
        counts_NK: Ints,
        bytes_NK: Ints,
        *messages: tuple[Values, Ints],
    ) -> Sizes:
        """Tell each rank what it will get, and hear what comes; ``CommError`` if a rank is elsewhere.

        ``messages``, values and how many are for each rank, leave at once; ``receive`` those of the others in the same
        order.
        """
        blocks = counts_NK.shape[1]
        out = np.empty((self.ranks, _HEADER + 2 * blocks), np.int64)
        out[:, :_HEADER] = (turn, digest, samples)
        out[:, _HEADER : _HEADER + blocks] = counts_NK
        out[:, _HEADER + blocks :] = bytes_NK
        with self._waiting():
            heard, receives = (self.tell or self._tell_by_swaps)(out, messages, self._where(turn))
        self._posted.extend(receives)
        for rank in np.flatnonzero((heard[:, 0] != turn) | (heard[:, 1] != digest)):
            raise CommError(
                f"{self.name}: rank {rank} is at turn {heard[rank, 0]} with plan {heard[rank, 1]:016x}, "
                f"rank {self.rank} at turn {turn} with plan {digest:016x}; the ranks are out of step"
            )
        return Sizes(heard[:, 2].copy(), heard[:, _HEADER : _HEADER + blocks], heard[:, _HEADER + blocks :])

    def receive(self, heard: Values, coming_N: Ints) -> None:
        """Take what the others announced, ``coming_N`` values from each; nothing comes from this rank."""
        with self._waiting():
            self._posted.popleft()(heard, coming_N)

    def move(self, out: Values, heard: Values, sent_N: Ints, coming_N: Ints, turn: int) -> None:
        """Send ``sent_N`` values to each rank and hear theirs, whose sizes are known."""
        with self._waiting():
            self.swap(heard, out, coming_N, sent_N, self._where(turn))

    def close(self) -> None:
        """Leave the process group."""
        if self.group is not None:
            dist.destroy_process_group(self.group)

    def take_time(self) -> float:
        """Return the time since the last call."""
        waited, self.waited_s = self.waited_s, 0.0
        return waited

    @contextmanager
    def _waiting(self) -> Iterator[None]:
        start = perf_counter()
        try:
            yield
        finally:
            self.waited_s += perf_counter() - start

    def _tell_by_swaps(
        self, heads_NH: Ints, messages: Sequence[tuple[Values, Ints]], where: str
    ) -> tuple[Ints, list[Receive]]:
        heard_NH, row = heads_NH.copy(), np.full(self.ranks, heads_NH.shape[1])
        self.swap(heard_NH.reshape(-1), heads_NH.reshape(-1), row, row, where)

        def receive(out: Values, sent_N: Ints, heard: Values, coming_N: Ints) -> None:
            self.swap(heard, out, coming_N, sent_N, where)

        return heard_NH, [partial(receive, *message) for message in messages]

    def _where(self, turn: int) -> str:
        return f"{self.name}, turn {turn}"


def even_bounds(words: int, parts: int, multiple: int = 1) -> Ints:
    """Cut so many words into parts that differ by at most ``multiple``, at multiples of it."""
    units = -(-words // multiple)
    return np.minimum(np.arange(parts + 1) * units // parts * multiple, words)
