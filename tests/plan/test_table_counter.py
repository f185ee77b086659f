"""Places of ids can be undone, and look random."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from laconic.plan.access.table_counter import ids_at, places_of


@given(st.lists(st.integers(-(2**63), 2**63 - 1), max_size=50))
def test_every_id_comes_back(ids):
    ids = np.array(ids, dtype=np.int64)
    np.testing.assert_array_equal(ids_at(places_of(ids)), ids)


def test_ids_in_a_row_are_spread_evenly():
    eighths = np.bincount((places_of(np.arange(80_000)) >> np.uint64(61)).astype(np.int64), minlength=8)
    assert np.abs(eighths - 10_000).max() < 5 * np.sqrt(10_000)  # five standard deviations
