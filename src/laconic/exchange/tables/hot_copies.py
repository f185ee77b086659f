"""A rank's copies of hot rows, and the places that their tables keep for them.

Copies are rows of the rank's matrix like any others, in parts behind the tables. The owner of a hot row has both: the
place, which nobody looks up, and a copy. Shape legend: ``R`` rows of the rank's matrix, ``D`` dimensions, ``H``
hot rows of a table.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from laconic.exchange.tables.hot_rows import HotRows
from laconic.exchange.tables.layout import Layout

__all__ = ["HotCopies"]

Ints = NDArray[np.int64]
Rows = NDArray[Any]


class HotCopies:
    """The copies of one rank."""

    def __init__(self, hot: HotRows, layout: Layout, weight_RD: Rows, state_R: Rows | None) -> None:
        """``layout``: of all parts."""
        self._weight, self._state = weight_RD, state_R
        places, copies = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
        for part, (t, ids_H) in enumerate(hot.ids.items(), start=len(hot.tables)):
            rank_H, local_H = layout.locate(np.full(len(ids_H), t), ids_H)
            mine = np.flatnonzero(rank_H == layout.rank)
            places.append(layout.base_T[t] + local_H[mine])
            copies.append(layout.base_T[part] + mine)
        self._places, self._copies = np.concatenate(places), np.concatenate(copies)

    def write_back(self) -> None:
        """Bring the places of this rank's hot rows up to date, for whoever reads its shards."""
        self._weight[self._places] = self._weight[self._copies]
        if self._state is not None:
            self._state[self._places] = self._state[self._copies]
