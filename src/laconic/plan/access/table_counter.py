"""Counts the lookups of one table in one pass, in memory that does not grow with what is looked up.

Ids wait in a buffer; a full one is sorted and added at once, so what comes out does not depend on the blocks in which
ids came. As long as there are no more than ``capacity`` distinct ids, all counts are exact and nothing else matters.
From then on there are two sets of at most ``capacity`` ids:

sample  the ids with the smallest places (see ``scatter``): a fair sample of all ids, each counted exactly, because an
        id that is in it at the end never left it. What all other ids have in common is estimated from it.
held    the most frequent ids (lossy counting, Manku and Motwani, VLDB 2002, with a floor that rises only when there is
        no room): an id whose count may not exceed ``floor`` is dropped; an id that comes, or comes again, may have
        been looked up ``floor`` times before. Frequent ids come early and stay: they have missed nothing.
"""

from __future__ import annotations

import numpy as np

from laconic.errors import FormatError
from laconic.plan.access.scatter import scatter
from laconic.plan.access.tallies import Ints, Tallies

__all__ = ["TableCounter"]

_SHORTEST_BUFFER = 4096


class TableCounter:
    """Takes ids, part after part of the samples."""

    def __init__(self, name: str, rows: int, capacity: int) -> None:
        self.name = name
        self.rows = rows
        self.lookups = 0
        self.first_lookups = 0
        self.last_lookups = 0
        self.sample = Tallies()
        self.held: Tallies | None = None
        """None: ``sample`` has all ids."""
        self._capacity = capacity
        self._floor = 0
        self._buffer = np.empty(max(capacity // 2, _SHORTEST_BUFFER), dtype=np.int64)
        self._waiting = 0

    def add(self, ids: Ints, part: str | None) -> None:
        """Take ids; ``flush`` before the part changes."""
        taken = 0
        while taken < ids.size:
            count = min(self._buffer.size - self._waiting, ids.size - taken)
            self._buffer[self._waiting : self._waiting + count] = ids[taken : taken + count]
            self._waiting += count
            taken += count
            if self._waiting == self._buffer.size:
                self.flush(part)

    def flush(self, part: str | None) -> None:
        """Count what waits."""
        ids = self._buffer[: self._waiting]
        if not ids.size:
            return
        if ids.min() < 0 or ids.max() >= self.rows:
            wrong = ids[(ids < 0) | (ids >= self.rows)][0]
            raise FormatError(
                f"profile: table {self.name!r}: expected ids in 0..{self.rows - 1}, got {wrong}"
            )
        self._waiting = 0
        self.lookups += ids.size
        self.first_lookups += ids.size if part == "first" else 0
        self.last_lookups += ids.size if part == "last" else 0
        place_U, count_U = np.unique(scatter(ids), return_counts=True)
        if self.held is None:
            self.sample.add(place_U, count_U, part=part)
            if len(self.sample) <= self._capacity:
                return
            self.held = self.sample.kept(slice(None))
        else:
            near_U = place_U <= self.sample.place_N[-1]
            self.sample.add(place_U[near_U], count_U[near_U], part=part)
            self.held.add(place_U, count_U, part=part, missed=self._floor)
        self.sample = self.sample.kept(slice(self._capacity))
        self._make_room(self.held)

    def _make_room(self, held: Tallies) -> None:
        excess = len(held) - self._capacity
        if excess > 0:
            most_N = held.count_N + held.missed_N
            self._floor = int(np.partition(most_N, excess - 1)[excess - 1])
            self.held = held.kept(most_N > self._floor)
