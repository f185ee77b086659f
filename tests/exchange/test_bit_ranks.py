"""A set of bits says what a sorted list of its members would."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from laconic.exchange.tables.bit_ranks import BitRanks


@given(st.integers(1, 300), st.data())
def test_members_and_how_many_are_smaller(size, data):
    members = sorted(data.draw(st.sets(st.integers(0, size - 1))))
    bits = BitRanks(size, np.array(members[::-1], np.int64))
    found, smaller = bits.find(np.arange(size))
    assert bits.count == len(members)
    assert np.flatnonzero(found).tolist() == members
    assert smaller.tolist() == [sum(member < number for member in members) for number in range(size)]
    start, stop = sorted(data.draw(st.tuples(st.integers(0, size), st.integers(0, size))))
    assert bits.members(start, stop).tolist() == [member for member in members if start <= member < stop]


def test_a_set_without_room_is_empty():
    bits = BitRanks(0, np.empty(0, np.int64))
    assert (bits.count, bits.members(0, 0).tolist()) == (0, [])
    assert bits.find(np.empty(0, np.int64))[1].tolist() == []
