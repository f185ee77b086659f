"""Numbers that stand for rows: a table and a row in one key, sets of rows, checked lists of ids."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from laconic import kernels
from laconic.errors import PlanError
from laconic.exchange.tables.table import Table

__all__ = ["RowKey", "RowSet", "checked_ids", "distinct_keys", "stable_order"]

Bits = NDArray[np.bool_]
Ints = NDArray[np.int64]
Words = NDArray[np.uint64]
_TWOS, _FOURS, _EIGHTS, _ALL = (np.uint64(int(byte * 8, 16)) for byte in ("55", "33", "0f", "01"))
_SMALL_MAP = 1 << 28  # numbers; 50 MB of bits


def stable_order(keys: Ints) -> Ints:
    """Return the places of keys, at least 0, in ascending order; equal keys keep theirs."""
    order = np.empty_like(keys)
    kernels.active().stable_order(keys, order)
    return order


def distinct_keys(keys: Ints) -> tuple[Ints, Ints]:
    """Return distinct keys, at least 0, in ascending order, and which of them each is."""
    distinct, inverse = np.empty_like(keys), np.empty_like(keys)
    count = kernels.active().distinct_keys(keys, distinct, inverse)
    return distinct[:count], inverse


class RowKey:
    """A table, or a list, and a row in one number, which sorts by table and then by row."""

    BITS = 40
    """A table has fewer rows than 2^40."""

    @classmethod
    def pack(cls, table: Any, row: Any) -> Any:
        """Make keys of tables and rows."""
        return table << cls.BITS | row

    @classmethod
    def table(cls, key: Any) -> Any:
        """Return the tables of keys."""
        return key >> cls.BITS

    @classmethod
    def row(cls, key: Any) -> Any:
        """Return the rows of keys."""
        return key & ((1 << cls.BITS) - 1)


class RowSet:
    """A set of numbers below ``size`` that also knows how many members are smaller than a number.

    It has one bit for each number that there could be, and a count before every 64 of them: 1.5
    bits a number. Where that takes more than a list of the members, they are searched for. Shape
    legend: ``M`` members, ``Q`` questions.
    """

    def __init__(self, size: int, members_M: Ints) -> None:
        """``members_M``: in any order, each once."""
        self.count = len(members_M)
        self._sorted_M: Ints | None = None
        if size > max(_SMALL_MAP, 42 * self.count):
            self._sorted_M = np.append(np.sort(members_M), -1)  # which no question is
            return
        self._words = np.zeros(-(-size // 64), "<u8")
        np.bitwise_or.at(self._words, members_M >> 6, _bit(members_M))
        ones = _ones(self._words)
        before = np.cumsum(ones) - ones
        self._before = before.astype(np.uint32) if self.count < 2**32 else before

    def find(self, number_Q: Ints) -> tuple[Bits, Ints]:
        """Which of these are members, and how many smaller ones there are."""
        if self._sorted_M is not None:
            smaller_Q = np.searchsorted(self._sorted_M[:-1], number_Q)
            return self._sorted_M[smaller_Q] == number_Q, smaller_Q
        word_Q, bit_Q = self._words[number_Q >> 6], _bit(number_Q)
        smaller_Q = _ones(word_Q & (bit_Q - np.uint64(1))) + self._before[number_Q >> 6]
        return (word_Q & bit_Q) != 0, smaller_Q

    def members(self, start: int, stop: int) -> Ints:
        """Return the members from ``start`` up to ``stop``, ascending."""
        if self._sorted_M is not None:
            first, last = np.searchsorted(self._sorted_M[:-1], [start, stop])
            return self._sorted_M[first:last]
        word = start // 64
        bits = np.unpackbits(self._words[word : -(-stop // 64)].view(np.uint8), bitorder="little")
        found: Ints = np.flatnonzero(bits[start - 64 * word : stop - 64 * word]) + start
        return found


def _bit(number: Ints) -> Words:
    return np.left_shift(np.uint64(1), (number & 63).astype(np.uint64))


def _ones(words: Words) -> Ints:
    """Count the bits of each word that are set: in pairs, fours, eights, and all.

    numpy 1 has no function for it.
    """
    pairs = words - (words >> np.uint64(1) & _TWOS)
    fours = (pairs & _FOURS) + (pairs >> np.uint64(2) & _FOURS)
    eights = fours + (fours >> np.uint64(4)) & _EIGHTS
    counted: Ints = (eights * _ALL >> np.uint64(56)).astype(np.int64)
    return counted


def checked_ids(kind: str, tables: Sequence[Table], ids: Mapping[str, Any] | None) -> dict[int, Ints]:
    """Return ascending ids by the number of their table, for tables that have any.

    ``PlanError`` calls them ``kind`` rows.
    """
    ids = ids or {}
    names = [table.name for table in tables]
    for name in ids:
        if name not in names:
            raise PlanError(f"{kind} rows: no table {name!r} (known: {', '.join(names)})")
    return {
        t: _checked(f"{kind} rows of table {table.name!r}", table.rows, ids[table.name])
        for t, table in enumerate(tables)
        if table.name in ids and len(ids[table.name])
    }


def _checked(where: str, rows: int, ids: Any) -> Ints:
    ids_R = np.asarray(ids)
    if ids_R.ndim != 1 or ids_R.dtype.kind not in "iu":
        raise PlanError(f"{where}: expected a list of ids, got {ids_R.dtype} of shape {ids_R.shape}")
    ids_R = ids_R.astype(np.int64)
    wrong = ids_R[(ids_R < 0) | (ids_R >= rows)]
    if len(wrong):
        raise PlanError(f"{where}: expected ids below its {rows} rows, got {wrong[0]}; plan again")
    falling = np.flatnonzero(np.diff(ids_R) <= 0)
    if len(falling):
        raise PlanError(
            f"{where}: expected ascending ids, got {ids_R[falling[0] + 1]} after {ids_R[falling[0]]}"
        )
    return ids_R
