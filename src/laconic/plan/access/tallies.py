"""Counts of ids, in arrays sorted by the ids' places (see ``scatter``), to which sorted counts are added.

Shape legend: ``N`` ids held, ``U`` distinct ids that are added.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

__all__ = ["Ints", "Places", "Tallies"]

Ints = NDArray[np.int64]
Places = NDArray[np.uint64]


def _none() -> Ints:
    return np.empty(0, dtype=np.int64)


@dataclass(slots=True)
class Tallies:
    """What is known of each id; changed in place."""

    place_N: Places = field(default_factory=lambda: np.empty(0, dtype=np.uint64))
    """Ascending, distinct."""

    count_N: Ints = field(default_factory=_none)
    """Lookups since the id is held."""

    first_N: Ints = field(default_factory=_none)
    """Those of them in the first part of the samples."""

    last_N: Ints = field(default_factory=_none)
    """Those of them in the last part."""

    missed_N: Ints = field(default_factory=_none)
    """At most so many lookups before the id was held."""

    def __len__(self) -> int:
        return int(self.place_N.size)

    def add(self, place_U: Places, count_U: Ints, *, part: str | None, missed: int = 0) -> None:
        """Add counts; ``part`` is "first", "last" or neither, ``missed`` what new ids may have had before."""
        at_U = np.searchsorted(self.place_N, place_U)
        known_U = np.zeros(place_U.size, dtype=np.bool_)
        inside = at_U < len(self)
        known_U[inside] = self.place_N[at_U[inside]] == place_U[inside]
        at, counts = at_U[known_U], count_U[known_U]
        self.count_N[at] += counts
        if part is not None:
            self._part(part)[at] += counts
        new_U = ~known_U
        self._insert(at_U[new_U], place_U[new_U], count_U[new_U], part, missed)

    def among(self, place_U: Places) -> NDArray[np.bool_]:
        """Which of some places are held."""
        at_U = np.minimum(np.searchsorted(self.place_N, place_U), max(len(self) - 1, 0))
        return self.place_N[at_U] == place_U if len(self) else np.zeros(place_U.size, dtype=np.bool_)

    def kept(self, which: NDArray[np.bool_] | slice) -> Tallies:
        """Copy some."""
        return Tallies(
            self.place_N[which].copy(),
            self.count_N[which].copy(),
            self.first_N[which].copy(),
            self.last_N[which].copy(),
            self.missed_N[which].copy(),
        )

    def _part(self, part: str) -> Ints:
        return self.first_N if part == "first" else self.last_N

    def _insert(self, at: Ints, places: Places, counts: Ints, part: str | None, missed: int) -> None:
        """Make room column by column: only one is in memory twice at a time."""
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
        self.first_N = woven(self.first_N, counts if part == "first" else 0)
        self.last_N = woven(self.last_N, counts if part == "last" else 0)
        self.missed_N = woven(self.missed_N, missed)
