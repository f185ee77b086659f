"""Small values of every rank, on every rank, through a transport of their own.

A collective of torch would need a process group of its own where it may take longer than others: a
rank that writes a checkpoint keeps the others waiting.
"""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np

from laconic.exchange.ranks.heads import Head
from laconic.exchange.ranks.transport import Message
from laconic.exchange.ranks.world import World

__all__ = ["Gathering"]


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
        transport = self._transport
        transport.patience_s = self._patience_s if patient else None
        data = np.frombuffer(pickle.dumps(value), np.uint8)
        self._turn += 1
        sizes_N1 = np.full((transport.ranks, 1), len(data))
        head = Head(self._turn, 0, 0, sizes_N1, np.zeros_like(sizes_N1))
        heads = transport.announce(head, Message.same(data, transport.ranks))
        coming_N = heads.counts_NK[:, 0]
        out = np.empty(int(coming_N.sum()), np.uint8)
        transport.receive(out, coming_N)
        transport.take_time()
        return [pickle.loads(part.tobytes()) for part in np.split(out, np.cumsum(coming_N)[:-1])]
