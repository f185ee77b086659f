"""A batch on its way, and what a rank has sent of it in one direction.

Shape legend: ``N`` ranks, ``T`` tables.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from laconic.exchange.coder import Coder
from laconic.exchange.exchange_plan import ExchangePlan
from laconic.exchange.ids import Routed
from laconic.exchange.ledger import Entry, Ledger
from laconic.exchange.prefetched import PrefetchedRows

__all__ = ["SentBlocks", "Turn"]

Ints = NDArray[np.int64]
Rows = NDArray[Any]


@dataclass(frozen=True, slots=True, eq=False)
class Turn:
    """A batch on its way: where its rows are, how they travel, and who counts."""

    routed: Routed
    plan: ExchangePlan
    """Of all parts."""
    step: int
    ledger: Ledger | None
    """None: nobody counts, as in an evaluation."""
    trains: bool = True
    """Whether gradients will follow."""


@dataclass(slots=True, eq=False)
class SentBlocks:
    """What has left in one direction of a turn, and what is known of it."""

    turn: Turn
    coder: Coder
    counts_NT: Ints
    bytes_NT: Ints
    encode_s: float
    head_bytes: int = 0
    """Bytes that announced it."""
    prefetched: PrefetchedRows | None = None
    """Of rows."""
    own: Rows | None = None
    """Gradients of rows that this rank asked of itself."""

    def entry(self, waited: float, decode_s: float, more: int = 0) -> Entry:
        """Return what a ledger counts of it; ``more``: bytes of messages beside the blocks."""
        before_T = self.counts_NT.sum(axis=0) * (self.coder.dim * self.coder.item_bytes)
        times = (self.encode_s, waited, decode_s)
        sizes = self.head_bytes + more
        return Entry(self.turn.step, before_T, self.bytes_NT.sum(axis=0), sizes, *times)
