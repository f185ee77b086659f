"""A multiplier that follows the loss: down as it levels out, never up, the same after a restart."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from laconic.adapt.closed_loop import ClosedLoop
from laconic.adapt.decay import LEVELS
from laconic.errors import ConfigError

LOSSES = st.lists(st.floats(0, 1e6) | st.just(math.nan) | st.just(math.inf), max_size=60)


def multipliers(loop, losses):
    seen = []
    for loss in losses:
        loop.observe(loss)
        seen.append(loop.multiplier)
    return seen


def levelling_out(observations):
    return [0.45 + 0.25 * math.exp(-t / 20) for t in range(observations)]


def test_it_is_wide_while_the_loss_falls_fast_and_narrow_when_it_has_levelled_out():
    seen = multipliers(ClosedLoop(k=3), levelling_out(400))
    assert seen[:5] == [3] * 5
    assert seen[-1] <= 1 + 2 / LEVELS  # the rate is still above 0, so the last level is held
    assert len(set(seen)) > LEVELS / 2


def test_a_loss_that_falls_ever_faster_keeps_it_at_k():
    assert set(multipliers(ClosedLoop(), [1 - (t / 100) ** 2 for t in range(90)])) == {2}


@pytest.mark.parametrize("loss", [0.0, 0.1, 0.7, 1e6])
def test_a_loss_that_stands_still_brings_it_to_1_once_seen_three_times(loss):
    assert multipliers(ClosedLoop(k=4), [loss] * 20) == [4, 4] + [1] * 18


def test_a_loss_that_rises_brings_it_to_1_for_good():
    falling = [1.0, 0.9, 0.8, 0.7]
    seen = multipliers(ClosedLoop(), [*falling, 5.0, *falling, 0.5, 0.2])
    assert seen == [2] * 4 + [1] * 7


@pytest.mark.parametrize("loss", [math.nan, math.inf, -math.inf])
def test_a_loss_that_is_not_finite_brings_it_to_1_at_once_and_for_good(loss):
    assert multipliers(ClosedLoop(), [0.9, loss, 0.8, 0.7, 0.6, 0.5]) == [2, 1, 1, 1, 1, 1]


@given(st.floats(1, 100), LOSSES)
def test_it_never_rises_and_stays_between_k_and_1(k, losses):
    seen = [k, *multipliers(ClosedLoop(k), losses), 1]
    assert seen == sorted(seen, reverse=True)


@given(LOSSES, LOSSES)
def test_a_restored_one_continues_identically(before, after):
    loop = ClosedLoop(k=2.5)
    multipliers(loop, before)
    restored = ClosedLoop.restore(2.5, json.loads(json.dumps(loop.state(), allow_nan=False)))
    assert restored.multiplier == loop.multiplier
    assert multipliers(restored, after) == multipliers(loop, after)
    assert restored.state() == loop.state()


def test_a_negative_loss_is_refused():
    message = r"^closed_loop: expected a loss >= 0, got -0\.5; rates are relative to the loss, shift it$"
    with pytest.raises(ConfigError, match=message):
        ClosedLoop().observe(-0.5)


def test_k_only_widens():
    message = r"^closed_loop\.k: expected a finite number >= 1, got 0\.9; 1 leaves bounds alone$"
    with pytest.raises(ConfigError, match=message):
        ClosedLoop(0.9)
