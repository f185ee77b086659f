"""Rows of a batch that the rank which looks them up has itself: a sample of the tables that costs no message.

Shape legend: ``L`` lookups, ``R`` distinct rows.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from laconic.collectives.layout import Layout
from laconic.collectives.request import checked_lookups
from laconic.lookups import Lookups

__all__ = ["looked_up", "own_rows"]

Ints = NDArray[np.int64]
_ID_BITS = 40  # a table has fewer rows than 2^40


def looked_up(lookups: Lookups, layout: Layout) -> tuple[Ints, Ints, Ints]:
    """Table, sample and id of every lookup."""
    ids_L, offsets = checked_lookups(lookups, layout.tables)
    cell_L = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    return *np.divmod(cell_L, max(lookups.samples, 1)), ids_L


def own_rows(table_L: Ints, ids_L: Ints, layout: Layout) -> tuple[Ints, Ints]:
    """Table and id of every row among these that the layout's rank has, once each."""
    mine_L = layout.locate(table_L, ids_L)[0] == layout.rank
    key_R = np.unique(table_L[mine_L] << _ID_BITS | ids_L[mine_L])
    return key_R >> _ID_BITS, key_R & ((1 << _ID_BITS) - 1)
