"""Multipliers by the clock against their formulas."""

from __future__ import annotations

import math
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from laconic.adapt.adaptive import Decay
from laconic.errors import ConfigError
from tests.cases import each

LEVELS = 64
KINDS = ["none", "step", "linear", "log", "constant"]
FORMULAS = {
    "linear": lambda k, x: k * (1 - x * (1 - 1 / k)),
    "log": lambda k, x: k * ((1 - math.log(1 + x * (math.e - 1))) * (1 - 1 / k) + 1 / k),
}


@pytest.mark.parametrize("kind", FORMULAS)
@given(k=st.floats(1, 100), steps=st.integers(1, 10**6), data=st.data())
def test_it_is_the_formula_rounded_up_by_less_than_a_level(kind, k, steps, data):
    step = data.draw(st.integers(0, steps - 1))
    above = Decay(kind, k, steps).multiplier(step) - FORMULAS[kind](k, step / steps)
    rounding = 8 * sys.float_info.epsilon * k  # either side is fewer than eight roundings of numbers up to k
    assert -rounding <= above < (k - 1) / LEVELS + rounding


def test_steps_are_ten_equal_plateaus():
    decay = Decay("step", k=11, steps=20)
    assert [decay.multiplier(step) for step in range(20)] == [11 - i // 2 for i in range(20)]


def test_a_constant_holds_until_the_end():
    decay = Decay("constant", k=3, steps=5)
    assert [decay.multiplier(step) for step in range(7)] == [3, 3, 3, 3, 3, 1, 1]


@pytest.mark.parametrize("kind", ["step", "linear", "log", "constant"])
@given(k=st.floats(1.001, 1000), steps=st.integers(1, 10**6))
def test_it_starts_at_k_and_reaches_1_at_the_end_and_not_before(kind, k, steps):
    decay = Decay(kind, k, steps)
    assert decay.multiplier(0) == k
    assert decay.multiplier(steps - 1) > 1
    assert decay.multiplier(steps) == decay.multiplier(steps + 10**9) == 1


@each("kind", KINDS)
def test_it_never_rises_and_changes_at_most_64_times(kind):
    multipliers = [Decay(kind, 2.7, 5000).multiplier(step) for step in range(6000)]
    assert multipliers == sorted(multipliers, reverse=True)
    assert len(set(multipliers)) <= LEVELS + 1


@each("decay", [Decay("none", 5, 100), *(Decay(kind) for kind in KINDS)])
def test_no_kind_or_no_steps_is_no_decay(decay):
    assert decay.multiplier(0) == 1


@each("kind", KINDS)
def test_a_k_of_1_leaves_bounds_alone(kind):
    assert {Decay(kind, 1, 10).multiplier(step) for step in range(12)} == {1}


@each("k", [0.5, math.nan, math.inf, -1])
def test_k_only_widens_and_is_finite(k):
    message = rf"^decay\.k: expected a finite number >= 1, got {k!r}; 1 leaves bounds alone$"
    with pytest.raises(ConfigError, match=message):
        Decay("linear", k)


def test_there_are_no_negative_steps():
    with pytest.raises(ConfigError, match=r"^decay\.steps: expected at least 0, got -1; 0 is no decay$"):
        Decay("linear", steps=-1)


def test_an_unknown_kind_is_refused_with_the_known_ones():
    message = r"^decay\.kind: expected one of none, step, linear, log, constant, got 'cosine'$"
    with pytest.raises(ConfigError, match=message):
        Decay("cosine")
