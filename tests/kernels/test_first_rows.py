"""First values of rows: every implementation draws what numpy's generator of their chunk draws."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from laconic import kernels

NAMES = ("reference", *kernels.available())


def draw(name, rows, dim, seed, table):
    out = np.full((len(rows), dim), np.nan, np.float32)
    kernels.load(name).first_rows(out, np.array(rows, np.int64), seed, table)
    return out


@given(
    st.lists(st.integers(0, 200_000), max_size=6),
    st.integers(1, 35),
    st.integers(0, 2**63 - 1),
    st.integers(0, 2**32 - 1),
)
def test_every_implementation_draws_the_same(rows, dim, seed, table):
    expected = draw("reference", rows, dim, seed, table)
    for name in kernels.available():
        assert np.array_equal(draw(name, rows, dim, seed, table), expected)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dim", [1, 7, 8, 64])
def test_rows_are_those_of_one_generator_for_each_chunk(name, dim):
    """It draws all rows of a chunk, one after the other."""
    for chunk in (0, 3):
        key = np.array([17, 5 << 32 | chunk], np.uint64)
        whole = np.random.Generator(np.random.Philox(key=key)).random((100, dim), np.float32)
        rows = chunk * (1 << 16) + np.arange(100)[::3]
        assert np.array_equal(draw(name, rows, dim, 17, 5), whole[::3])


@pytest.mark.parametrize("name", NAMES)
def test_what_is_no_row_is_refused(name):
    for row in (-1, 1 << 48):
        with pytest.raises(ValueError, match=rf"expected rows from 0 to 2\^48 - 1, got {row}"):
            draw(name, [0, row], 4, 0, 0)
    with pytest.raises(ValueError, match="out must have as many rows as are asked for"):
        kernels.load(name).first_rows(np.empty((2, 4), np.float32), np.arange(3), 0, 0)
