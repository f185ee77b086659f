"""Bytes between ranks: a size message for all blocks of a direction, then one byte all-to-all.

The size message from one rank to another, int64::

    step   plan digest   samples   counts of K blocks   bytes of K blocks

It is checked before data moves: ranks that disagree about the step or the plan all raise, none
hangs. Every wire has a process group of its own, so that directions may overlap, and one thread
that uses it, so that their order is the same on every rank.
"""

from __future__ import annotations

from dataclasses import dataclass
from time import perf_counter
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray

from laconic.errors import CommError

__all__ = ["Sizes", "Wire", "lost_peer"]

Ints = NDArray[np.int64]
Bytes = NDArray[np.uint8]
_HEADER = 3


@dataclass(frozen=True, slots=True)
class Sizes:
    """What all ranks announced to this one."""

    samples_N: Ints
    counts_NK: Ints
    bytes_NK: Ints


@dataclass
class Wire:
    """The ranks of a process group, as one of them reaches the others."""

    name: str
    rank: int
    ranks: int
    group: Any = None
    """None where there is only one rank."""
    waited_s: float = 0.0
    """Time spent in messages since ``take_time``."""

    def announce(self, step: int, digest: int, samples: int, counts_NK: Ints, bytes_NK: Ints) -> Sizes:
        """Tell each rank what it will get, and hear what comes; ``CommError`` if a rank is elsewhere."""
        blocks = counts_NK.shape[1]
        out = np.empty((self.ranks, _HEADER + 2 * blocks), np.int64)
        out[:, :_HEADER] = (step, digest, samples)
        out[:, _HEADER : _HEADER + blocks] = counts_NK
        out[:, _HEADER + blocks :] = bytes_NK
        heard = np.empty_like(out)
        self._all_to_all(heard.reshape(-1), out.reshape(-1), None, None, step)
        for rank in np.flatnonzero((heard[:, 0] != step) | (heard[:, 1] != digest)):
            raise CommError(
                f"{self.name}: rank {rank} is at step {heard[rank, 0]} with plan {heard[rank, 1]:016x}, "
                f"rank {self.rank} at step {step} with plan {digest:016x}; the ranks are out of step"
            )
        return Sizes(heard[:, 2].copy(), heard[:, _HEADER : _HEADER + blocks], heard[:, _HEADER + blocks :])

    def size_message_bytes(self, blocks: int) -> int:
        """Bytes of one round of size messages that leave this rank."""
        return 8 * (_HEADER + 2 * blocks) * (self.ranks - 1)

    def move(self, out: Bytes, heard: Bytes, sent_N: Ints, coming_N: Ints, step: int) -> None:
        """Send ``sent_N`` bytes to each rank, in rank order; nothing goes to this one."""
        self._all_to_all(heard, out, coming_N.tolist(), sent_N.tolist(), step)

    def take_time(self) -> float:
        """Return the time since the last call."""
        waited, self.waited_s = self.waited_s, 0.0
        return waited

    def _all_to_all(
        self,
        heard: NDArray[Any],
        out: NDArray[Any],
        coming: list[int] | None,
        sent: list[int] | None,
        step: int,
    ) -> None:
        if self.group is None:
            heard[...] = out
            return
        start = perf_counter()
        try:
            dist.all_to_all_single(
                torch.from_numpy(heard), torch.from_numpy(out), coming, sent, group=self.group
            )
        except RuntimeError as error:
            raise lost_peer(self.name, self.rank, step, error) from error
        finally:
            self.waited_s += perf_counter() - start


def lost_peer(where: str, rank: int, step: int, error: RuntimeError) -> CommError:
    """Say what a failed collective means to the user."""
    cause = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    return CommError(
        f"{where}: rank {rank} lost a peer at step {step} ({cause}); a rank or a link is down, "
        "see the first error of the other ranks; continue from the last checkpoint with --resume"
    )
