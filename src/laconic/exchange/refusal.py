"""Batches that a rank refuses, and what it tells the others, so that all raise and the next batch finds them in step.

A rank that cannot look up its ids announces ``REFUSED`` samples, and sends the text of its error in place of ids.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from laconic.errors import ConfigError
from laconic.exchange.wire import Sizes, Wire
from laconic.exchange.worker import RefusedBatchError

__all__ = ["check_refusals", "refuse"]

REFUSED = -1


def refuse(wire: Wire, turn: int, digest: int, blocks: int, error: ConfigError) -> RefusedBatchError:
    """Tell the others why this rank has no ids for them; returns what this one raises."""
    text = np.frombuffer(str(error).encode(), np.uint8)
    others_N = np.arange(wire.ranks) != wire.rank
    bytes_NK = np.zeros((wire.ranks, blocks), np.int64)
    bytes_NK[others_N, 0] = len(text)
    message = (np.tile(text, wire.ranks - 1), bytes_NK[:, 0])
    heard = wire.announce(turn, digest, REFUSED, np.zeros_like(bytes_NK), bytes_NK, message)
    coming_N = heard.bytes_NK.sum(axis=1)
    wire.receive(np.empty(int(coming_N.sum()), np.uint8), coming_N)  # nobody looks at it
    wire.take_time()
    return RefusedBatchError(str(error))


def check_refusals(wire: Wire, heard: Sizes, arrived: NDArray[np.uint8]) -> None:
    """Raise what the first of the ranks that refuse has to say; ``arrived`` is what all have sent, in rank order."""
    ends_N = heard.bytes_NK.sum(axis=1).cumsum()
    for rank in np.flatnonzero(heard.samples_N == REFUSED):
        wire.take_time()
        text = arrived[ends_N[rank] - heard.bytes_NK[rank].sum() : ends_N[rank]].tobytes().decode()
        raise RefusedBatchError(f"rank {rank}: {text}")
