"""Sorting of keys: every implementation finds what numpy does."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from laconic import kernels

NAMES = ("reference", *kernels.available())
KEYS = st.one_of(
    st.integers(0, 5), st.integers(0, 2**63 - 1), st.sampled_from([0, 2**40, 2**40 + 7, 3 * 2**40, 2**63 - 1])
)


def order_of(name, keys):
    order = np.full(len(keys), -1)
    kernels.load(name).stable_order(keys, order)
    return order


def distinct_of(name, keys):
    distinct, inverse = (np.full(len(keys), -1) for _ in range(2))
    count = kernels.load(name).distinct_keys(keys, distinct, inverse)
    return distinct[:count], inverse


def check(keys):
    expected, places = np.unique(keys, return_inverse=True)
    for name in NAMES:
        assert np.array_equal(order_of(name, keys), np.argsort(keys, kind="stable"))
        distinct, inverse = distinct_of(name, keys)
        assert np.array_equal(distinct, expected)
        assert np.array_equal(inverse, places)


@given(st.lists(KEYS, max_size=30))
def test_few_keys_of_any_size(keys):
    check(np.array(keys, np.int64))


@given(st.integers(0, 2**32 - 1), st.integers(500, 3000), st.integers(1, 5), st.integers(1, 40))
def test_many_keys_of_some_tables(seed, count, tables, bits):
    """Up to 2^40 rows, as keys of rows have them, and more bits than are sorted digit by digit."""
    rng = np.random.default_rng(seed)
    check(rng.integers(0, tables, count) << 40 | rng.integers(0, 2**bits, count))


def test_keys_that_are_sorted_or_all_the_same():
    for keys in (np.arange(1000), np.arange(1000)[::-1].copy(), np.full(1000, 7), np.zeros(0, np.int64)):
        check(keys)


@pytest.mark.parametrize("name", NAMES)
def test_what_cannot_be_sorted_is_refused(name):
    for sort in (order_of, distinct_of):
        with pytest.raises(ValueError, match="expected keys of at least 0, got -3"):
            sort(name, np.array([1, -3]))
    with pytest.raises(ValueError, match="order must be as long as the keys"):
        kernels.load(name).stable_order(np.arange(3), np.empty(2, np.int64))
    with pytest.raises(ValueError, match="must be as long as the keys"):
        kernels.load(name).distinct_keys(np.arange(3), np.empty(3, np.int64), np.empty(2, np.int64))
