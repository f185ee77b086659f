"""Rows as they were before they were updated, so that steps can be taken back.

A copy of all tables would take as much memory as the tables; a few steps touch few rows.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Journal"]

Ints = NDArray[np.int64]
Rows = NDArray[Any]


class Journal:
    """Notes rows before each update; ``undo`` brings them back."""

    def __init__(self, weight_RD: Rows, state_R: Rows | None) -> None:
        self._weight, self._state = weight_RD, state_R
        self._entries: list[tuple[Ints, Rows, Rows | None]] = []

    def note(self, rows: Ints) -> None:
        """Keep these rows, which an update is about to change; repeated ones once."""
        rows = np.unique(rows)
        state = None if self._state is None else self._state[rows]
        self._entries.append((rows, self._weight[rows], state))

    def undo(self) -> None:
        """Bring rows back as they were when the journal was begun; it goes on from there."""
        for rows, weight, state in reversed(self._entries):
            self._weight[rows] = weight
            if self._state is not None:
                self._state[rows] = state
        self._entries.clear()
