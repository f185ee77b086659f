"""A rank's warm rows in memory, and the places that the file has for them.

Both are rows of the rank's matrix. Shape legend: ``R`` rows of the matrix, ``D`` dimensions.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from laconic.exchange.tables.layout import Layout

__all__ = ["WarmCopies"]

Ints = NDArray[np.int64]
Rows = NDArray[Any]
_CHUNK = 1 << 16  # rows of a shard; lists of all places would be a good part of what they save


class WarmCopies:
    """The copies of one rank."""

    def __init__(self, layout: Layout, weight_RD: Rows, state_R: Rows | None) -> None:
        self._layout = layout
        self._matrices = [matrix for matrix in (weight_RD, state_R) if matrix is not None]

    def write_back(self, *tables: int) -> None:
        """Bring the places of warm rows up to date, for whoever reads shards of these tables."""
        for places, copies in self._pairs(tables):
            for matrix in self._matrices:
                matrix[places] = matrix[copies]

    def take(self, *tables: int) -> None:
        """Make copies what is in their places, after somebody wrote to shards of these tables."""
        for places, copies in self._pairs(tables):
            for matrix in self._matrices:
                matrix[copies] = matrix[places]

    def _pairs(self, tables: tuple[int, ...]) -> Iterator[tuple[Ints, slice]]:
        """Places and copies, piece by piece."""
        for shard in (self._layout.shard(t) for t in tables if self._layout.cold_T[t]):
            for start in range(shard.start, shard.stop, _CHUNK):
                yield self._layout.warm_rows(start, min(start + _CHUNK, shard.stop))
