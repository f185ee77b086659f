"""Counts the lookups of one table in one pass, in memory that does not grow with what is looked up.

Ids wait in a buffer; a full one is sorted and added at once, so what comes out does not depend on
the blocks in which ids came. As long as there are no more than ``capacity`` distinct ids, all
counts are exact and nothing else matters. From then on there are two sets of at most ``capacity``
ids:

sample  The ids with the smallest places, a fair sample of all ids. Each is counted exactly,
        because an id that is in it at the end never left it. All other ids are estimated from it.
held    The most frequent ids, by lossy counting (Manku and Motwani, VLDB 2002), with a floor that
        rises only when the buffer is full. An id whose count may not exceed ``floor`` is dropped.
        An id that comes, or comes again, may have been looked up ``floor`` times before. Frequent
        ids come early and stay, so they have missed nothing.

An id's *place* is a 64-bit word as good as drawn at random, the same in every run. Ids are sorted
by place: the first k of them are then a fair sample of all ids, and their ids can be had back.
Shape legend: ``N`` ids held, ``U`` distinct ids that are added.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from laconic.data.hashing import mix64, unmix64
from laconic.errors import FormatError

__all__ = ["Ints", "TableCounter", "Tallies", "ids_at", "places_of"]

Ints = NDArray[np.int64]
Places = NDArray[np.uint64]
_SHORTEST_BUFFER = 4096
_KEY = np.uint64(0x6A09E667F3BCC909)  # keeps the sample apart from hashes that data may have been split by


def places_of(ids: Ints) -> Places:
    """Return the place of every id."""
    return mix64(ids.view(np.uint64) ^ _KEY)


def ids_at(places: Places) -> Ints:
    """Return the id at every place."""
    return (unmix64(places) ^ _KEY).view(np.int64)


def _none() -> Ints:
    return np.empty(0, dtype=np.int64)


@dataclass(slots=True)
class Tallies:
    """Counts of each id; changed in place."""

    place_N: Places = field(default_factory=lambda: np.empty(0, dtype=np.uint64))
    """Places of the ids, ascending and distinct."""

    count_N: Ints = field(default_factory=_none)
    """Lookups of the id since it is held."""

    first_N: Ints = field(default_factory=_none)
    """Lookups among these in the first third of the samples."""

    last_N: Ints = field(default_factory=_none)
    """Lookups among these in the last third of the samples."""

    missed_N: Ints = field(default_factory=_none)
    """Largest possible number of lookups before the id was held."""

    def __len__(self) -> int:
        return int(self.place_N.size)

    def add(self, place_U: Places, count_U: Ints, *, third: str | None, missed: int = 0) -> None:
        """Add counts of a third ("first", "last" or None); new ids may have ``missed`` lookups."""
        at_U = np.searchsorted(self.place_N, place_U)
        known_U = np.zeros(place_U.size, dtype=np.bool_)
        inside = at_U < len(self)
        known_U[inside] = self.place_N[at_U[inside]] == place_U[inside]
        at, counts = at_U[known_U], count_U[known_U]
        self.count_N[at] += counts
        if third is not None:
            self._third(third)[at] += counts
        new_U = ~known_U
        self._insert(at_U[new_U], place_U[new_U], count_U[new_U], third, missed)

    def among(self, place_U: Places) -> NDArray[np.bool_]:
        """Return which of some places are held."""
        at_U = np.minimum(np.searchsorted(self.place_N, place_U), max(len(self) - 1, 0))
        return self.place_N[at_U] == place_U if len(self) else np.zeros(place_U.size, dtype=np.bool_)

    def kept(self, which: NDArray[np.bool_] | slice) -> Tallies:
        """Copy some of the counts."""
        return Tallies(
            self.place_N[which].copy(),
            self.count_N[which].copy(),
            self.first_N[which].copy(),
            self.last_N[which].copy(),
            self.missed_N[which].copy(),
        )

    def _third(self, third: str) -> Ints:
        return self.first_N if third == "first" else self.last_N

    def _insert(self, at: Ints, places: Places, counts: Ints, third: str | None, missed: int) -> None:
        """Insert ids column by column, so that only one column is in memory twice at a time."""
        if not at.size:
            return
        spot = at + np.arange(at.size)
        old = np.ones(len(self) + at.size, dtype=np.bool_)
        old[spot] = False

        def woven(column: Ints, value: Ints | int) -> Ints:
            wider = np.empty(old.size, dtype=np.int64)
            wider[old], wider[spot] = column, value
            return wider

        place_N = np.empty(old.size, dtype=np.uint64)
        place_N[old], place_N[spot] = self.place_N, places
        self.place_N = place_N
        self.count_N = woven(self.count_N, counts)
        self.first_N = woven(self.first_N, counts if third == "first" else 0)
        self.last_N = woven(self.last_N, counts if third == "last" else 0)
        self.missed_N = woven(self.missed_N, missed)


class TableCounter:
    """Counts ids, third after third of the samples."""

    def __init__(self, name: str, rows: int, capacity: int) -> None:
        self.name = name
        self.rows = rows
        self.lookups = 0
        self.first_lookups = 0
        self.last_lookups = 0
        self.sample = Tallies()
        self.held: Tallies | None = None
        """The most frequent ids; None as long as ``sample`` has all ids."""
        self._capacity = capacity
        self._floor = 0
        self._buffer = np.empty(max(capacity // 2, _SHORTEST_BUFFER), dtype=np.int64)
        self._waiting = 0

    def add(self, ids: Ints, third: str | None) -> None:
        """Take ids of one third; call ``flush`` before the third changes."""
        taken = 0
        while taken < ids.size:
            count = min(self._buffer.size - self._waiting, ids.size - taken)
            self._buffer[self._waiting : self._waiting + count] = ids[taken : taken + count]
            self._waiting += count
            taken += count
            if self._waiting == self._buffer.size:
                self.flush(third)

    def flush(self, third: str | None) -> None:
        """Count the ids that wait in the buffer."""
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
        self.first_lookups += ids.size if third == "first" else 0
        self.last_lookups += ids.size if third == "last" else 0
        place_U, count_U = np.unique(places_of(ids), return_counts=True)
        if self.held is None:
            self.sample.add(place_U, count_U, third=third)
            if len(self.sample) <= self._capacity:
                return
            self.held = self.sample.kept(slice(None))
        else:
            near_U = place_U <= self.sample.place_N[-1]
            self.sample.add(place_U[near_U], count_U[near_U], third=third)
            self.held.add(place_U, count_U, third=third, missed=self._floor)
        self.sample = self.sample.kept(slice(self._capacity))
        self._drop_rarest(self.held)

    def _drop_rarest(self, held: Tallies) -> None:
        excess = len(held) - self._capacity
        if excess > 0:
            most_N = held.count_N + held.missed_N
            self._floor = int(np.partition(most_N, excess - 1)[excess - 1])
            self.held = held.kept(most_N > self._floor)
