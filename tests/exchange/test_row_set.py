"""A set of rows says what a sorted list of its members would, as bits and searched."""

from __future__ import annotations

from unittest.mock import patch

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from laconic.exchange.tables import keys
from laconic.exchange.tables.keys import RowKey, RowSet


@given(st.integers(1, 300), st.booleans(), st.data())
def test_members_and_how_many_are_smaller(size, searched, data):
    members = sorted(data.draw(st.sets(st.integers(0, size - 1), max_size=size // 42 if searched else None)))
    with patch.object(keys, "_SMALL_MAP", 0 if searched else 1 << 28):
        rows = RowSet(size, np.array(members[::-1], np.int64))
    assert (rows._sorted_M is not None) == (searched and size > 42 * len(members))
    found, smaller = rows.find(np.arange(size))
    assert rows.count == len(members)
    assert np.flatnonzero(found).tolist() == members
    assert smaller.tolist() == [sum(member < number for member in members) for number in range(size)]
    start, stop = sorted(data.draw(st.tuples(st.integers(0, size), st.integers(0, size))))
    assert rows.members(start, stop).tolist() == [member for member in members if start <= member < stop]


def test_a_set_without_room_is_empty():
    rows = RowSet(0, np.empty(0, np.int64))
    assert (rows.count, rows.members(0, 0).tolist()) == (0, [])
    assert rows.find(np.empty(0, np.int64))[1].tolist() == []


@given(st.integers(0, 2**23 - 1), st.integers(0, 2**40 - 1))
def test_a_key_has_its_table_and_its_row(table, row):
    key = RowKey.pack(np.array([table]), np.array([row]))
    assert (RowKey.table(key)[0], RowKey.row(key)[0]) == (table, row)
