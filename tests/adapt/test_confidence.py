"""Intervals that hold at all looks together, and the sums beneath them."""

from __future__ import annotations

import json
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from laconic.adapt.confidence import RunningMean
from laconic.errors import ConfigError
from tests.cases import each

ALPHA = 0.05
STREAMS, LOOKS = 2000, 400
SOURCES = {
    "normal": lambda random, shape: random.standard_normal(shape),
    "laplace": lambda random, shape: random.laplace(size=shape),
    "heavy-tailed": lambda random, shape: random.standard_t(3, shape),
}

# up to a hundred orders of magnitude apart; squares neither overflow nor vanish
WIDE = st.floats(-1e50, 1e50).filter(lambda value: value == 0 or abs(value) > 1e-50)
BATCHES = st.lists(st.lists(WIDE, max_size=20), max_size=6)


def filled(values, tightest_at=100):
    running = RunningMean(tightest_at)
    running.add(values)
    return running


def radii_of_unit_variance(tightest_at):
    unit = [{"count": n, "mean": 0.0, "squares": float(n)} for n in range(1, LOOKS + 1)]
    return np.array([RunningMean.restore(tightest_at, state).radius(ALPHA) for state in unit])


def means_and_deviations(values):
    counts = np.arange(1, LOOKS + 1)
    means = values.cumsum(1) / counts
    variances = np.square(values).cumsum(1) / counts - np.square(means)
    return means[:, 1:], np.sqrt(variances[:, 1:])


@each("source", SOURCES)
@each("tightest_at", [10, 50, 400])
def test_looking_at_every_value_leaves_the_interval_less_often_than_promised(source, tightest_at):
    values = SOURCES[source](np.random.default_rng(1), (STREAMS, LOOKS))
    means, deviations = means_and_deviations(values)
    ever_left = (np.abs(means) > radii_of_unit_variance(tightest_at)[1:] * deviations).any(1)
    assert ever_left.mean() < ALPHA


def test_an_interval_for_one_look_is_left_far_more_often():
    """What this module is for, on the same streams, with the first twenty values spared."""
    means, deviations = means_and_deviations(np.random.default_rng(1).standard_normal((STREAMS, LOOKS)))
    radii = 1.96 / np.sqrt(np.arange(2, LOOKS + 1))
    ever_left = (np.abs(means) > radii * deviations)[:, 20:].any(1)
    assert ever_left.mean() > 6 * ALPHA


def test_a_difference_is_found():
    # six standard errors at the end, where the radius is about three
    values = 0.3 + np.random.default_rng(1).standard_normal((STREAMS, LOOKS))
    means, deviations = means_and_deviations(values)
    found = (means > radii_of_unit_variance(LOOKS)[1:] * deviations).any(1)
    assert found.mean() > 0.95


def test_many_values_have_the_radius_of_the_asymptotic_sequence():
    n, tightest_at = 10**6, 1000
    r = (-2 * math.log(ALPHA) + math.log(-2 * math.log(ALPHA)) + 1) / tightest_at
    asymptotic = math.sqrt(2 * (n * r + 1) / (n * n * r) * math.log(math.sqrt(n * r + 1) / ALPHA))
    ratio = (
        RunningMean.restore(tightest_at, {"count": n, "mean": 0.0, "squares": n}).radius(ALPHA) / asymptotic
    )
    # with x = log a: (e^x - 1) / x is within x of 1, and so is (1 - e^-L) / (1 - e^(x - L)) for L > log 2
    assert abs(ratio - 1) <= (2 * math.log(1 / ALPHA) + math.log(n * r + 1)) / n


def test_the_interval_is_narrowest_where_it_was_aimed():
    values = np.random.default_rng(1).standard_normal(1000)
    radii = [filled(values, aim).radius(ALPHA) for aim in (10, 100, 1000, 10_000, 100_000)]
    assert min(radii) == radii[2]


@given(BATCHES)
def test_batches_merge_to_the_mean_and_spread_of_all_values(batches):
    running = RunningMean(tightest_at=10)
    for batch in batches:
        running.add(np.array(batch))
    exact = [Fraction(value) for batch in batches for value in batch]
    n = len(exact)
    assert running.count == n
    if not n:
        return
    mean = sum(exact) / n
    squares = sum((value - mean) ** 2 for value in exact)
    # Each of at most 2 n sums and merges adds a few roundings of numbers up to 2 b to the mean; to the
    # squares, n times these errors times distances up to 2 b.
    b, unit = max(map(abs, exact)), Fraction(1, 2**53)
    assert abs(Fraction(running.mean) - mean) <= 16 * n * unit * b
    assert abs(Fraction(running.state()["squares"]) - squares) <= 128 * n * n * unit * b * b


def test_a_small_spread_far_from_zero_is_not_lost():
    # the spread is 1e-3 of 1e9: sums of squares, near 1e20, would have an ulp of 1e4
    far = filled(1e9 + np.tile([-(2.0**-10), 2.0**-10], 500))
    assert far.mean == 1e9
    assert far.radius(ALPHA) == filled(np.tile([-(2.0**-10), 2.0**-10], 500)).radius(ALPHA)


@given(BATCHES, st.lists(WIDE, max_size=20))
def test_a_restored_one_continues_identically(before, after):
    running = RunningMean(tightest_at=7)
    for batch in before:
        running.add(np.array(batch))
    restored = RunningMean.restore(7, json.loads(json.dumps(running.state(), allow_nan=False)))
    running.add(np.array(after))
    restored.add(np.array(after))
    assert restored.state() == running.state()
    assert restored.radius(ALPHA) == running.radius(ALPHA)


def test_nothing_is_known_without_values():
    empty = filled([])
    assert empty.count == 0
    assert math.isnan(empty.mean)
    assert (empty.lower(ALPHA), empty.upper(ALPHA)) == (-math.inf, math.inf)


@each("tightest_at", [1, 10**6])
def test_one_value_says_nothing_about_the_mean(tightest_at):
    one = filled(3.0, tightest_at)
    assert (one.count, one.mean) == (1, 3.0)
    assert one.radius(ALPHA) == math.inf


def test_the_interval_is_the_mean_and_the_radius_to_either_side():
    some = filled(np.random.default_rng(1).standard_normal(100))
    assert some.lower(ALPHA) == some.mean - some.radius(ALPHA)
    assert some.upper(ALPHA) == some.mean + some.radius(ALPHA)


def test_more_certainty_is_a_wider_interval():
    some = filled(np.random.default_rng(1).standard_normal(100))
    radii = [some.radius(alpha) for alpha in (0.5, 0.1, 0.01, 1e-6)]
    assert radii == sorted(radii)


@each("value", [math.nan, math.inf])
def test_a_value_that_is_not_finite_is_refused_and_leaves_no_trace(value):
    running = filled([1.0, 2.0])
    message = rf"^confidence: expected finite values, got {value} at 1; a model that diverged has no mean"
    with pytest.raises(ConfigError, match=message):
        running.add(np.array([0.0, value]))
    assert running.state() == filled([1.0, 2.0]).state()


@each("alpha", [0.0, 0.6, -1.0, math.nan])
def test_alpha_is_a_small_probability(alpha):
    message = rf"^confidence\.alpha: expected a probability in \(0, 0\.5\], got {alpha!r}$"
    with pytest.raises(ConfigError, match=message):
        filled([1.0, 2.0]).radius(alpha)


def test_the_aim_is_a_count():
    with pytest.raises(ConfigError, match=r"^confidence\.tightest_at: expected a count >= 1, got 0$"):
        RunningMean(tightest_at=0)
