"""Expected distinct rows against counting them."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from laconic.cost.frequencies import Frequencies
from laconic.cost.needed_rows import distinct_rows, needed_G
from laconic.errors import ConfigError
from tests.cases import each
from tests.oracle.by_time import correlation_of, frequencies_of
from tests.oracle.distinct import enough_rows, strays_by, variance_bound

TRIALS = 400


def drawn_distinct(frequencies: Frequencies, lookups: int, repeats: int = 1) -> np.ndarray:
    """Distinct rows of many batches; each draw is repeated."""
    rng = np.random.default_rng(1)
    probability_R = np.repeat(frequencies.probability_G, frequencies.count_G)
    ids = rng.choice(len(probability_R), (TRIALS, lookups // repeats), p=probability_R / probability_R.sum())
    return np.array([len(np.unique(batch)) for batch in ids])


@each("exponent", [0.0, 0.8, 1.2])
@each(("rows", "lookups"), [(1, 9), (50, 40), (3000, 512), (20_000, 300)])
def test_the_expectation_is_the_mean_of_batches(exponent, rows, lookups):
    frequencies = Frequencies.zipf(rows, exponent)
    drawn = drawn_distinct(frequencies, lookups)
    error = 5 * np.sqrt(variance_bound(frequencies, lookups) / TRIALS)  # five standard errors at least
    assert abs(drawn.mean() - distinct_rows(frequencies, lookups)) <= error + 1e-9
    assert drawn.var() <= variance_bound(frequencies, lookups) * 1.4 + 1e-9


def test_the_expectation_is_exact_where_all_batches_can_be_listed():
    frequencies = Frequencies.from_runs([1, 1, 2], [0.5, 0.3, 0.1])
    p = [0.5, 0.3, 0.1, 0.1]
    mean = sum(
        np.prod([p[i] for i in batch]) * len(set(batch)) for batch in itertools.product(range(4), repeat=3)
    )
    assert distinct_rows(frequencies, 3) == pytest.approx(mean, rel=1e-12)


def test_rows_that_are_always_or_never_hit():
    frequencies = Frequencies.from_runs([1, 5], [1.0, 0.0])
    assert needed_G(frequencies, 3).tolist() == [1.0, 0.0]
    assert needed_G(frequencies, 0).tolist() == [0.0, 0.0]
    assert distinct_rows(frequencies_of(np.zeros(0, np.int64)), 10) == 0.0


def test_rare_rows_keep_their_digits():
    """1 - (1 - p) ** b computed plainly is 0 here."""
    frequencies = Frequencies.uniform(10**17)
    assert distinct_rows(frequencies, 1000) == pytest.approx(1000, rel=1e-9)


@each("failure", [0.3, 0.05])
def test_batches_stray_no_farther_than_the_bounds_say(failure):
    for frequencies, lookups in ((Frequencies.zipf(3000, 1.0), 512), (Frequencies.zipf(30, 1.0), 512)):
        drawn = drawn_distinct(frequencies, lookups)
        limit = distinct_rows(frequencies, lookups) + strays_by(frequencies, lookups, failure)
        assert (drawn > limit).mean() <= failure
        assert (drawn > enough_rows(frequencies, lookups, failure)).mean() <= failure


def test_bernstein_is_the_tighter_bound_where_rows_are_hot():
    hot = Frequencies.zipf(30, 1.0)
    assert strays_by(hot, 4096, 1e-6) < np.sqrt(4096 * np.log(1e6) / 2) / 5
    assert enough_rows(hot, 4096) == 30
    assert enough_rows(Frequencies.uniform(10**9), 4) == 4


def test_a_measured_correlation_reproduces_what_was_measured():
    frequencies = Frequencies.zipf(5000, 1.0)
    clustered = drawn_distinct(frequencies, 600, repeats=3).mean()
    c = correlation_of(frequencies, 600, clustered)
    assert c == pytest.approx(3.0, rel=0.02)
    assert distinct_rows(frequencies, 600, c) == pytest.approx(clustered, rel=1e-6)


def test_what_cannot_be_is_refused():
    frequencies = Frequencies.uniform(5)
    with pytest.raises(ConfigError, match="lookups >= 0 and a correlation > 0, got nan"):
        distinct_rows(frequencies, float("nan"))
    with pytest.raises(ConfigError, match=r"got 1\.0 and 0"):
        distinct_rows(frequencies, 1.0, 0)
    with pytest.raises(ConfigError, match="between 0 and 1, got 0"):
        strays_by(frequencies, 5, 0)
    with pytest.raises(ConfigError, match="at most as many distinct rows as lookups, 3, got 4"):
        correlation_of(frequencies, 3, 4)
