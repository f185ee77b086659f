"""Bytes between ranks: a size message for all blocks of a direction, then one all-to-all of bytes.

The size message from one rank to another, int64::

    turn   plan digest   samples   counts of K blocks   bytes of K blocks

It is checked before data moves: ranks that disagree about the turn or the plan all raise, none
hangs. One thread uses a wire, so that the order of its messages is the same on every rank; what carries them
is in ``world``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import numpy as np
import torch.distributed as dist
from numpy.typing import NDArray

from laconic.errors import CommError

__all__ = ["Sizes", "Swap", "Wire", "size_message_bytes"]

Ints = NDArray[np.int64]
Bytes = NDArray[np.uint8]
Swap = Callable[[NDArray[Any], NDArray[Any], Ints, Ints, str], None]
"""``swap(heard, out, coming_N, sent_N, where)``: ``out`` holds ``sent_N[r]`` values for every rank r, in order, and
``heard`` gets ``coming_N[r]`` from each; none go to this rank itself, though it may have some in both."""
_HEADER = 3


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
    group: Any = None
    """Process group that carries the messages, if one does."""
    waited_s: float = 0.0
    """Time spent in messages since ``take_time``."""

    def announce(self, turn: int, digest: int, samples: int, counts_NK: Ints, bytes_NK: Ints) -> Sizes:
        """Tell each rank what it will get, and hear what comes; ``CommError`` if a rank is elsewhere."""
        blocks = counts_NK.shape[1]
        out = np.empty((self.ranks, _HEADER + 2 * blocks), np.int64)
        out[:, :_HEADER] = (turn, digest, samples)
        out[:, _HEADER : _HEADER + blocks] = counts_NK
        out[:, _HEADER + blocks :] = bytes_NK
        heard = np.empty_like(out)
        heard[self.rank] = out[self.rank]
        row = np.full(self.ranks, out.shape[1])
        self._swap(heard.reshape(-1), out.reshape(-1), row, row, turn)
        for rank in np.flatnonzero((heard[:, 0] != turn) | (heard[:, 1] != digest)):
            raise CommError(
                f"{self.name}: rank {rank} is at turn {heard[rank, 0]} with plan {heard[rank, 1]:016x}, "
                f"rank {self.rank} at turn {turn} with plan {digest:016x}; the ranks are out of step"
            )
        return Sizes(heard[:, 2].copy(), heard[:, _HEADER : _HEADER + blocks], heard[:, _HEADER + blocks :])

    def move(self, out: Bytes, heard: Bytes, sent_N: Ints, coming_N: Ints, turn: int) -> None:
        """Send ``sent_N`` bytes to each rank, in rank order; nothing goes to this one."""
        self._swap(heard, out, coming_N, sent_N, turn)

    def close(self) -> None:
        """Leave the process group."""
        if self.group is not None:
            dist.destroy_process_group(self.group)

    def take_time(self) -> float:
        """Return the time since the last call."""
        waited, self.waited_s = self.waited_s, 0.0
        return waited

    def _swap(self, heard: NDArray[Any], out: NDArray[Any], coming_N: Ints, sent_N: Ints, turn: int) -> None:
        start = perf_counter()
        try:
            self.swap(heard, out, coming_N, sent_N, f"{self.name}, turn {turn}")
        finally:
            self.waited_s += perf_counter() - start


def size_message_bytes(blocks: int, ranks: int) -> int:
    """Bytes of one round of size messages that leave a rank."""
    return 8 * (_HEADER + 2 * blocks) * (ranks - 1)
