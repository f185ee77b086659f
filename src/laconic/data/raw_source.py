"""How raw values become the samples of a source. A served model needs it to take raw values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from laconic.data.dense import Dense
from laconic.data.hashing import Texts

__all__ = ["Kind", "RawCategories", "RawSource", "RawValues", "ValueIndex", "Values"]


Kind = Literal["integer", "text", "hexadecimal"]


@dataclass(frozen=True, slots=True, eq=False)
class RawCategories:
    """How raw values of a table become ids: hashed, or listed in a vocabulary."""

    values: Kind

    vocabulary: Values | None
    """Known values in the order of their ids; None: all are hashed."""


@dataclass(frozen=True, slots=True, eq=False)
class RawValues:
    """How raw values of all features become samples."""

    dense: tuple[Dense, ...] | None
    """Transforms of raw numbers; None if they were not recorded."""

    categories: dict[str, RawCategories]
    """How raw values become ids, by table. If a table is missing here, its raw values are ids, or
    their transform is not known."""


@runtime_checkable
class RawSource(Protocol):
    """A source that can tell how raw values become its samples."""

    def raw_values(self) -> RawValues:
        """Return how raw values become samples; this may read vocabularies."""
        ...


Ints = NDArray[np.int64]

Values: TypeAlias = Texts | Ints
"""Distinct texts or distinct integers."""


class ValueIndex:
    """Finds values in a list; takes 16 bytes for each besides the list itself."""

    def __init__(self, values: Values) -> None:
        self.values = values
        keys = _keys(values)
        self._place = np.argsort(keys, kind="stable")
        self._keys = keys[self._place]
        self._most_alike = _longest_run(self._keys)

    def __len__(self) -> int:
        return len(self.values)

    def find(self, values: Values) -> Ints:
        """Return the place of every value in the list; the length of the list if it has it not."""
        found = np.full(len(values), len(self), dtype=np.int64)
        if not len(self):
            return found
        keys = _keys(values)
        order = np.argsort(keys)  # in order, neighbors are near in memory: three times as fast
        keys = keys[order]
        first = np.searchsorted(self._keys, keys)
        for step in range(self._most_alike):  # more than once only where texts have the same hash
            place = np.minimum(first + step, len(self) - 1)
            equal = np.flatnonzero(self._keys[place] == keys)
            alike, at = order[equal], self._place[place[equal]]
            if isinstance(self.values, Texts):
                assert isinstance(values, Texts)
                same = self.values.equal(at, values, alike)
                alike, at = alike[same], at[same]
            found[alike] = at
        return found


def _keys(values: Values) -> NDArray[np.uint64] | Ints:
    return values.hashes() if isinstance(values, Texts) else values


def _longest_run(keys: NDArray[np.uint64] | Ints) -> int:
    """Most keys in a row that are equal; ``keys`` are sorted."""
    begins = np.flatnonzero(np.concatenate([[True], keys[1:] != keys[:-1], [True]]))
    return int(np.diff(begins).max(initial=1))
