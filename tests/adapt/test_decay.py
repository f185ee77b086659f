"""Multipliers by the clock against their formulas."""

from __future__ import annotations

import math
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from laconic.adapt.decay import Decay
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
    above = Decay(kind=kind, k=k, steps=steps).multiplier(step) - FORMULAS[kind](k, step / steps)
    rounding = 8 * sys.float_info.epsilon * k  # either side is fewer than eight roundings of numbers up to k
    assert -rounding <= above < (k - 1) / LEVELS + rounding


def test_steps_are_ten_equal_plateaus():
    decay = Decay(kind="step", k=11, steps=20)
    assert [decay.multiplier(step) for step in range(20)] == [11 - i // 2 for i in range(20)]


def test_a_constant_holds_until_the_end():
    decay = Decay(kind="constant", k=3, steps=5)
    assert [decay.multiplier(step) for step in range(7)] == [3, 3, 3, 3, 3, 1, 1]


@pytest.mark.parametrize("kind", ["step", "linear", "log", "constant"])
@given(k=st.floats(1.001, 1000), steps=st.integers(1, 10**6))
def test_it_starts_at_k_and_reaches_1_at_the_end_and_not_before(kind, k, steps):
    decay = Decay(kind=kind, k=k, steps=steps)
    assert decay.multiplier(0) == k
    assert decay.multiplier(steps - 1) > 1
    assert decay.multiplier(steps) == decay.multiplier(steps + 10**9) == 1


@each("kind", KINDS)
def test_it_never_rises_and_changes_at_most_64_times(kind):
    multipliers = [Decay(kind=kind, k=2.7, steps=5000).multiplier(step) for step in range(6000)]
    assert multipliers == sorted(multipliers, reverse=True)
    assert len(set(multipliers)) <= LEVELS + 1


@each("decay", [Decay(), Decay(kind="none", k=5, steps=100)])
def test_no_kind_is_no_decay(decay):
    assert decay.multiplier(0) == 1


@each("kind", KINDS)
def test_a_k_of_1_leaves_bounds_alone(kind):
    assert {Decay(kind=kind, k=1, steps=10).multiplier(step) for step in range(12)} == {1}
