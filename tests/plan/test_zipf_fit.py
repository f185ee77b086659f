"""The exponent that was planted is found, and the distance says how good the law is."""

from __future__ import annotations

import numpy as np
import pytest

from laconic.plan.access.estimates import fit_zipf, zipf_shares
from tests.plan.test_profile import one_table, zipf_ids


@pytest.mark.parametrize("exponent", [0.0, 0.3, 0.8, 1.0, 1.2, 2.0])
def test_exact_frequencies_give_their_exponent(exponent):
    lookups = 1e12 * np.arange(1.0, 20_001) ** -exponent
    found = fit_zipf(np.ones(20_000, dtype=np.int64), lookups)
    assert found.exponent == pytest.approx(exponent, abs=1e-3)
    assert found.ks < 1e-3
    assert found.ranks == 20_000


@pytest.mark.parametrize("exponent", [0.6, 1.05])
@pytest.mark.parametrize("capacity", [200_000, 4096])
def test_drawn_lookups_give_the_exponent_nearly(exponent, capacity):
    table = one_table(zipf_ids(500_000, 100_000, exponent, 2), 100_000, capacity=capacity)
    assert table.zipf.exponent == pytest.approx(exponent, abs=0.03)
    assert table.zipf.ks < 0.03


def test_what_is_no_zipf_law_is_far_from_it():
    lookups = np.concatenate([np.full(500, 1000.0), np.full(500, 10.0)])
    assert fit_zipf(np.ones(1000, dtype=np.int64), lookups).ks > 0.1


def test_too_few_rows_are_not_fitted():
    assert fit_zipf(np.array([9, 1000]), np.array([50.0, 7.0])) is None
    assert fit_zipf(np.array([10, 1000]), np.array([50.0, 7.0])).ranks == 10
    assert fit_zipf(np.array([5]), np.array([0.0])) is None


def test_the_law_gives_all_lookups_to_the_ranks_that_were_fitted():
    found = fit_zipf(np.ones(5000, dtype=np.int64), 1e6 / np.arange(1.0, 5001))
    shares = zipf_shares(found, np.array([1.0, 70.0, 5000.0, 6000.0]))
    harmonic = np.cumsum(1 / np.arange(1, 6001.0)) / np.sum(1 / np.arange(1, 5001.0))
    assert shares == pytest.approx(harmonic[[0, 69, 4999, 5999]], abs=2e-3)
