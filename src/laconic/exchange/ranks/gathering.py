"""Small values of every rank, on every rank, through a transport of their own.

A collective of torch would need a process group of its own where it may take longer than others: a
rank that writes a checkpoint keeps the others waiting.
"""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
from numpy.typing import NDArray

from laconic.exchange.ranks.heads import Head
from laconic.exchange.ranks.transport import Message
from laconic.exchange.ranks.world import World

__all__ = ["Gathering"]

Bytes = NDArray[np.uint8]
Ints = NDArray[np.int64]


class Gathering:
    """Ranks that tell each other values; all call it alike."""

    def __init__(self, world: World, patience_s: float) -> None:
        """``patience_s``: how long a patient rank waits for the others."""
        self._transport = world.transport("values of all ranks")
        self._patience_s, self._turn = patience_s, 0

    def gather(self, value: Any, *, patient: bool) -> list[Any]:
        """Return the values of all ranks.

        Not ``patient``: ranks come here at about the same time, so that one that does not is gone.
        """
        data = _bytes_of(value)
        found = self._tell(data, np.full(self._transport.ranks, len(data)), patient)
        return [pickle.loads(part) for part in found]

    def hand(self, value: Any, to: int | None) -> list[Any]:
        """Send a value to one rank, if any; return what others sent to this one."""
        data = np.empty(0, np.uint8) if to is None else _bytes_of(value)
        sizes_N = np.zeros(self._transport.ranks, np.int64)
        if to is not None:
            sizes_N[to] = len(data)
        return [pickle.loads(part) for part in self._tell(data, sizes_N, patient=True) if len(part)]

    def _tell(self, data: Bytes, sizes_N: Ints, patient: bool) -> list[bytes]:
        """Send the same bytes to some ranks; return those of each."""
        transport = self._transport
        transport.patience_s = self._patience_s if patient else None
        self._turn += 1
        sizes_N1 = sizes_N[:, None]
        head = Head(self._turn, 0, 0, sizes_N1, np.zeros_like(sizes_N1))
        heads = transport.announce(head, Message(data, sizes_N, np.zeros_like(sizes_N)))
        coming_N = heads.counts_NK[:, 0]
        out = np.empty(int(coming_N.sum()), np.uint8)
        transport.receive(out, coming_N)
        transport.take_time()
        return [part.tobytes() for part in np.split(out, np.cumsum(coming_N)[:-1])]


def _bytes_of(value: Any) -> Bytes:
    """Return memory that may be written to: torch warns of any other."""
    return np.frombuffer(bytearray(pickle.dumps(value)), np.uint8)
