"""Rows are rounded to the nearest only where next to none would always arrive as zero."""

from __future__ import annotations

import numpy as np
import torch

from laconic.codecs import BoundedRows
from laconic.tuning.rounding import may_be_nearest

BOUNDS = (0.01, 0.1, 0.2)


def rows(small, of=100):
    """So many rows of 0.1, among others that span a range of 2."""
    rows_RD = np.full((of, 4), 0.1, np.float32)
    rows_RD[small:] = [1.0, -1.0, 0.5, -0.5]
    return rows_RD


def test_one_in_twenty_rows_may_be_lost_and_not_one_more():
    assert may_be_nearest(rows(small=5), BOUNDS) == (True, True, True)
    assert may_be_nearest(rows(small=6), BOUNDS) == (True, False, False)


def test_rows_that_count_as_lost_do_arrive_as_zero():
    for bound, lost in ((0.04, False), (0.06, True)):
        rows_RD = rows(small=6)
        codec = BoundedRows(bound=bound, relative=True)
        arrived_RD = codec.decode(codec.encode(torch.from_numpy(rows_RD)), rows_RD.shape)
        assert bool((arrived_RD[:6] == 0).all()) is lost
        assert may_be_nearest(rows_RD, (bound,)) == (not lost,)


def test_no_rows_and_values_that_are_no_numbers_decide_nothing():
    assert may_be_nearest(np.zeros((0, 4), np.float32), BOUNDS) == (False, False, False)
    odd_RD = rows(small=0)
    odd_RD[0] = [np.nan, np.inf, -np.inf, 0]
    assert may_be_nearest(odd_RD, BOUNDS) == (True, True, True)
