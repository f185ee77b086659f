"""Drift is nothing where there is none, and what it is where it is known."""

from __future__ import annotations

from math import comb

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from laconic.plan.access.estimates import _mean_deviation, drift_between
from tests.plan.test_profile import one_table, zipf_ids


@given(st.integers(1, 200), st.floats(0.05, 0.95))
def test_the_mean_deviation_is_that_of_the_binomial(count, share):
    sure = sum(
        comb(count, x) * share**x * (1 - share) ** (count - x) * abs(x - count * share)
        for x in range(count + 1)
    )
    assert _mean_deviation(count, share) == pytest.approx(sure, rel=1e-9)


def test_the_mean_deviation_of_many_joins_that_of_few():
    assert _mean_deviation(4096, 0.3) == pytest.approx(_mean_deviation(4095, 0.3), rel=4e-4)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("capacity", [100_000, 2048])
def test_samples_in_random_order_have_no_drift(seed, capacity):
    drift = one_table(zipf_ids(60_000, 20_000, 0.9, seed), 20_000, capacity=capacity).drift
    assert drift.distance < 5 * drift.noise
    assert drift.noise < 0.02


@pytest.mark.parametrize("capacity", [100_000, 2048])
@pytest.mark.parametrize(("shift", "distance"), [(0, 0.0), (1000, 0.1), (5000, 0.5), (10_000, 1.0)])
def test_a_shift_is_measured(shift, distance, capacity):
    draw = np.random.default_rng(shift)
    ids = np.concatenate([draw.integers(0, 10_000, 200_000) + part * shift // 2 for part in range(3)])
    drift = one_table(ids, 30_000, capacity=capacity).drift
    # rows have 20 lookups: those that differ stand out of chance
    sampled = 0.0 if capacity > 30_000 else 5 * np.sqrt(distance / 2048)
    assert drift.distance == pytest.approx(distance, abs=0.02 + sampled)


def test_rows_looked_up_once_tell_nothing():
    assert one_table(np.arange(900), 900).drift is None


def test_one_row_does_not_drift():
    assert one_table(np.zeros(900, dtype=np.int64), 3).drift.distance == 0.0


def test_a_part_without_lookups_tells_nothing():
    nothing = np.zeros(1, dtype=np.int64)
    assert drift_between(nothing, nothing + 5, np.ones(1), (0, 5)) is None
