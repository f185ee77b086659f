"""What a rank sends, for whoever observes it: rows and gradients as they were, and as they arrive.

Rows lie destination after destination, and for each of them part after part of the tables. Shape
legend: ``M`` other ranks, ``P`` parts, of which a table with hot rows has two, ``T`` tables, ``R``
rows, ``D`` dimensions.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from laconic.exchange.coder import Coder
from laconic.exchange.ledger import Direction

__all__ = ["Blocks", "KeptBlocks", "Observer", "SentRows", "seed_of"]

Ints = NDArray[np.int64]
Rows = NDArray[Any]


def seed_of(step: int, rank: int, ranks: int) -> int:
    """Return the seed of a rank's rounding in a step; tables use the 2^20 numbers that follow."""
    return (step * ranks + rank) << 20


@dataclass(frozen=True, slots=True, eq=False)
class Blocks:
    """Rows of one rank, in the blocks in which they travel."""

    rows_RD: Rows
    counts_MP: Ints
    """Rows of each block."""
    table_P: Ints
    """Table of which each part is."""
    rank: int
    """Rank that sends them, of this many ``ranks``."""
    ranks: int

    @property
    def table_R(self) -> Ints:
        """Table of each row."""
        return np.repeat(np.tile(self.table_P, len(self.counts_MP)), self.counts_MP.ravel())

    def copy(self) -> Blocks:
        """Return the same rows in memory of their own."""
        return replace(self, rows_RD=self.rows_RD.copy())

    def travel(self, coder: Coder, step: int) -> tuple[Rows, Ints]:
        """Return what would arrive with other codecs in a step, and the bytes of each block."""
        seed = seed_of(step, self.rank, self.ranks)
        payload, bytes_MP = coder.encode(self.rows_RD, self.counts_MP, seed)
        arrived_RD = self.rows_RD.copy()
        coder.decode(payload, bytes_MP, self.counts_MP, arrived_RD)
        return arrived_RD, bytes_MP


@dataclass(frozen=True, slots=True, eq=False)
class SentRows:
    """What a rank sends in one direction of a turn.

    Its memory is used again when the observer returns.
    """

    direction: Direction
    """``forward``: rows. ``backward``: gradients."""
    blocks: Blocks
    coder: Coder
    payload: NDArray[np.uint8]
    bytes_MP: Ints
    """Bytes of each block in the ``payload``."""

    def arrived_RD(self) -> Rows:
        """Return what the other ranks decode."""
        arrived_RD = self.blocks.rows_RD.copy()
        self.coder.decode(self.payload, self.bytes_MP, self.blocks.counts_MP, arrived_RD)
        return arrived_RD


class Observer(Protocol):
    """Who sees what rows and gradients become on their way."""

    def add(self, sent: SentRows) -> None:
        """Take what a rank sends in one direction; prefetched rows come by themselves."""
        ...


class KeptBlocks:
    """An observer that keeps what was sent, so that it can travel again with other codecs."""

    def __init__(self) -> None:
        self._blocks: defaultdict[Direction, list[Blocks]] = defaultdict(list)

    def add(self, sent: SentRows) -> None:
        """Keep a copy."""
        self._blocks[sent.direction].append(sent.blocks.copy())

    def of(self, direction: Direction) -> list[Blocks]:
        """Return what was sent in one direction, in the order in which it was."""
        return self._blocks[direction]
