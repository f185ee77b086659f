"""Runs of equally likely rows."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from laconic.cost.frequencies import Frequencies
from laconic.data.synthetic import zipf_rows
from laconic.errors import ConfigError
from tests.cases import each
from tests.oracle.by_time import frequencies_of


def test_counts_become_runs_by_falling_probability():
    frequencies = frequencies_of(np.array([0, 4, 1, 1, 0, 2]), lookups_per_sample=2.0)
    assert frequencies.count_G.tolist() == [1, 1, 2, 2]
    assert frequencies.probability_G.tolist() == [0.5, 0.25, 0.125, 0.0]
    assert (frequencies.rows, frequencies.share, frequencies.lookups_per_sample) == (6, 1.0, 2.0)


def test_one_row_may_have_nearly_all_lookups():
    frequencies = frequencies_of(np.array([10**15, 0, 1, 1]))
    assert frequencies.count_G.tolist() == [1, 2, 1]
    assert frequencies.probability_G[1] == 1 / (10**15 + 2)
    assert frequencies_of(np.array([3, 2], np.uint8)).probability_G.tolist() == [0.6, 0.4]


def test_runs_of_any_order_are_sorted_and_merged():
    frequencies = Frequencies.from_runs([1, 0, 3, 2], [0.1, 0.9, 0.2, 0.1])
    assert frequencies.count_G.tolist() == [3, 3]
    assert frequencies.probability_G.tolist() == [0.2, 0.1]


@given(st.lists(st.integers(0, 50), max_size=40), st.integers(0, 60))
def test_a_cut_takes_the_likeliest_rows_and_loses_none(counts, k):
    whole = frequencies_of(np.array(counts, np.int64))
    head, tail = whole.cut(k)
    assert head.rows == min(k, whole.rows)
    assert head.rows + tail.rows == whole.rows
    assert head.share + tail.share == pytest.approx(whole.share)
    best = sum(sorted(counts, reverse=True)[:k]) / max(sum(counts), 1)
    assert whole.hottest(k) == head.share == pytest.approx(best)


@each(("rows", "exponent"), [(1, 1.0), (7, 0.0), (5000, 0.6), (100_000, 1.0), (2_000_000, 1.3)])
def test_zipf_is_the_law_of_the_generator(rows, exponent):
    frequencies = Frequencies.zipf(rows, exponent)
    assert frequencies.rows == rows
    assert frequencies.share == pytest.approx(1.0)
    drawn = zipf_rows(np.random.default_rng(0).random((1, 400_000)), np.array([rows]), exponent)[0]
    for k in (1, 3, 100, 10_000):
        share = frequencies.hottest(k)
        deviation = np.sqrt(max(share * (1 - share), 0.0) / len(drawn))
        assert abs((drawn < k).mean() - share) <= 5 * deviation + 1e-4 * share


def test_a_trillion_rows_are_a_few_thousand_runs():
    frequencies = Frequencies.zipf(10**12, 1.05)
    assert frequencies.rows == 10**12
    assert len(frequencies.count_G) < 10_000
    assert frequencies.share == pytest.approx(1.0)


def test_an_empty_table_and_one_that_nobody_looks_at():
    assert frequencies_of(np.zeros(0, np.int64)).rows == 0
    quiet = frequencies_of(np.zeros(3, np.int64))
    assert (quiet.rows, quiet.share) == (3, 0.0)


@each(
    ("make", "message"),
    [
        (lambda: Frequencies(np.array([1]), np.array([0.5, 0.2])), "one probability for each run"),
        (lambda: Frequencies(np.array([0]), np.array([0.5])), "at least one row"),
        (lambda: Frequencies(np.array([1]), np.array([np.nan])), "from 0 to 1, got"),
        (lambda: Frequencies(np.array([1, 1]), np.array([0.1, 0.2])), "strictly falling"),
        (lambda: Frequencies(np.array([3]), np.array([0.5])), "add up to at most 1, got 1.5"),
        (
            lambda: Frequencies(np.array([1]), np.array([0.5]), 0.0),
            "lookups_per_sample: expected a finite number > 0, got 0.0",
        ),
        (lambda: Frequencies.from_runs([-1], [0.5]), "a count >= 0"),
        (lambda: frequencies_of(np.array([-1])), "counts >= 0"),
        (lambda: frequencies_of(np.array([0.5])), "counts >= 0, got float64"),
        (lambda: Frequencies.uniform(0), "1 to 2\\^62 rows, got 0"),
        (lambda: Frequencies.zipf(5, float("nan")), "exponent from 0 to 10, got nan"),
        (lambda: Frequencies.uniform(5).cut(-1), "a number of rows >= 0, got -1"),
    ],
)
def test_what_cannot_be_is_refused(make, message):
    with pytest.raises(ConfigError, match=message):
        make()


def test_frequencies_cannot_be_changed():
    with pytest.raises(ValueError, match="read-only"):
        Frequencies.uniform(3).count_G[0] = 5


def test_rows_above_a_probability():
    frequencies = Frequencies.from_runs([1, 2, 5], [0.4, 0.2, 0.02])
    assert [frequencies.above(p).rows for p in (0.5, 0.4, 0.2, 0.1, 0.0)] == [0, 0, 1, 3, 8]
    assert frequencies.only(frequencies.count_G > 1).rows == 7
