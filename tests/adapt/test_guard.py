"""The guard lets a plan in by evidence, narrows what harms, and forgets nothing in a checkpoint."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest

from laconic.adapt import guard as module
from laconic.adapt.guard import ForkEvidence, Guard, LookEvidence
from laconic.adapt.harm import COMES_TRUE, LEAST_SLOPE
from laconic.errors import ConfigError
from tests.cases import each

NAMES = ("a", "b", "c", "d")
BUDGET = 0.001
HALF = BUDGET / 2
SAMPLES = module._TIGHTEST_AT


def look(step=8, harm_T=(0, 0, 0, 0), error_T=(0, 0, 0, 0), loss=0.5, spread=0.0, seed=0):
    """Harms, as shares of the loss, that each table does; their sum on average to every sample."""
    each = loss * np.full(SAMPLES, float(sum(harm_T)))
    if spread:
        each += loss * np.random.default_rng(seed).normal(0, spread, SAMPLES)
    return LookEvidence(step, loss, each, loss * np.array(harm_T, float), np.array(error_T, float))


def fork(step=8, lost=0.0, error_T=(0, 0, 0, 0), learnt=0.1, slope=0.0, spread=0.0, seed=0):
    """``lost``: what it will cost, as a share of the loss; see ``cost_of``."""
    each = np.full(SAMPLES, lost / cost_of(1.0, learnt, slope))
    if spread:
        each += np.random.default_rng(seed).normal(0, spread / cost_of(1.0, learnt, slope), SAMPLES)
    return ForkEvidence(step, each, learnt, np.array(error_T, float), np.ones(4), slope)


def cost_of(lost, learnt, slope):
    """Of losing so much loss where exact steps took off ``learnt``."""
    return COMES_TRUE * max(slope, LEAST_SLOPE) * lost / learnt


def guard_of(budget=BUDGET, **options):
    return Guard(NAMES, budget, **options)


def trusting(**options):
    """Return a guard that has let the plan in."""
    guard = guard_of(**options)
    guard.fork(fork())
    guard.look(look())
    assert guard.trusted
    return guard


def test_a_plan_is_not_trusted_before_both_reviews_passed():
    guard = guard_of()
    assert not guard.trusted
    assert guard.summary() == "guard: exact until the plan is proven"
    first = module._FIRST
    assert guard.due(first - 1) == []
    assert guard.due(first) == ["fork", "look"]
    assert guard.fork(fork(first)) == []
    assert not guard.trusted
    assert guard.look(look(first)) == []
    assert guard.trusted
    assert guard.summary() == "guard: bounds x1 rows, x1 gradients"


def test_a_look_that_passes_is_not_enough_either():
    guard = guard_of()
    guard.look(look())
    assert not guard.trusted
    assert guard.due(module._FIRST) == ["fork"]


def test_harm_tightens_the_tables_that_do_it_and_no_others():
    guard = guard_of()
    decisions = guard.look(look(harm_T=(0.1, 0, 0, 0.02)))
    assert [decision.tables for decision in decisions] == [("a",), ("d",)]
    assert all(decision.direction == "rows" and decision.factor < 1 for decision in decisions)
    assert decisions[0].factor < decisions[1].factor
    assert guard.rows_T.tolist() == [decisions[0].factor, 1, 1, decisions[1].factor]
    assert guard.gradients_T.tolist() == [1] * 4
    assert "harm 10.0000% of up to 12.0000% in all, more than 0.050%" in decisions[0].reason
    assert not guard.trusted


def test_harm_that_goes_with_the_square_of_bounds_fits_the_budget_after_a_few_reviews():
    guard, true_T, step = guard_of(), np.array([0.3, 1e-5, 0.004, 0]), 8
    guard.fork(fork())
    while not guard.trusted:
        guard.look(look(step, harm_T=true_T * guard.rows_T**2))
        step += 1
        assert step < 16, guard.rows_T
    assert (true_T * guard.rows_T**2).sum() <= HALF
    assert guard.rows_T[1] == guard.rows_T[3] == 1
    assert (guard.rows_T > 0).all()


def test_harm_that_no_table_does_by_itself_tightens_all():
    guard = guard_of()
    evidence = replace(look(harm_T=(0.01, 0, 0, 0)), harm_T=np.zeros(4))
    decisions = guard.look(evidence)
    assert [decision.tables for decision in decisions] == [("a",), ("b",), ("c",), ("d",)]
    assert len({decision.factor for decision in decisions}) == 1
    assert (guard.rows_T == decisions[0].factor).all()


def test_a_collapsing_table_is_tightened_by_itself_and_named():
    guard = guard_of()
    most = module._MOST_ROW_ERROR
    (decision,) = guard.look(look(error_T=(most, 0.9, most / 2, 0)))
    assert (decision.tables, decision.direction) == (("b",), "rows")
    assert decision.factor < 1
    assert decision.reason == f"error is 0.90 of the signal, more than {most:g}"
    assert guard.rows_T.tolist() == [1, decision.factor, 1, 1]
    assert not guard.trusted


@each("times", [1.01, 2, 10, 1000])
def test_one_tightening_brings_a_collapsing_table_below_the_limit(times):
    """Errors fall with the square of small bounds, or slower while they are large; see ``_relative_bound``."""
    guard, most = guard_of(), module._MOST_ROW_ERROR
    guard.look(look(error_T=(times * most, 0, 0, 0)))
    bound = guard.rows_T[0] * module._relative_bound(times * most)
    assert bound <= module._relative_bound(most)


def test_updates_that_collapse_are_tightened_by_themselves():
    guard = guard_of()
    most = module._MOST_UPDATE_ERROR
    (decision,) = guard.fork(fork(error_T=(0, 0, most, 7)))
    assert (decision.tables, decision.direction) == (("d",), "gradients")
    assert guard.gradients_T.tolist() == [1, 1, 1, decision.factor]
    assert guard.rows_T.tolist() == [1] * 4
    assert decision.reason == f"error is 7.00 of the signal, more than {most:g}"
    assert guard.due(9) == ["fork", "look"]


def test_lost_learning_tightens_the_gradients_of_all_tables():
    guard = guard_of()
    (decision,) = guard.fork(fork(lost=4 * HALF))
    assert (decision.tables, decision.direction) == (NAMES, "gradients")
    assert decision.factor < 1
    assert (guard.gradients_T == decision.factor).all()
    assert decision.reason == (
        "lost learning will cost up to 0.2000%, more than 0.050%; least cosine of updates 1.000"
    )


def test_steep_learning_makes_lost_learning_dearer():
    lost = fork(lost=HALF / 4)
    assert guard_of().fork(lost) == []
    assert guard_of().fork(replace(lost, slope=100 * LEAST_SLOPE)) != []


def test_what_has_room_is_loosened_but_never_beyond_the_loosest():
    guard = guard_of(loosest=2.0)
    seen = []
    for step in range(8, 20):
        decisions = [*guard.fork(fork(step)), *guard.look(look(step))]
        assert all(decision.factor > 1 for decision in decisions)
        seen.append((guard.rows_T.max(), guard.gradients_T.max()))
    assert seen[0] == (1.5, 1.5)
    assert seen[-1] == (2, 2)
    assert guard.trusted
    assert guard.look(look(99)) == []  # nothing is left to loosen


def test_what_was_tightened_comes_back_to_the_plan_and_not_beyond():
    guard = guard_of()
    guard.look(look(harm_T=(0.5, 0, 0, 0)))
    assert guard.rows_T[0] < 1
    (decision,) = guard.look(look(9))
    assert (decision.tables, decision.factor) == (("a",), 1.5)
    assert decision.reason == "harm of rows at most 0.0000% of 0.050%"
    for step in range(10, 40):
        guard.look(look(step))
    assert guard.rows_T.tolist() == [1] * 4


def test_reviews_spread_out_while_all_is_well():
    guard, steps = guard_of(), {"look": [], "fork": []}
    for step in range(1, 2000):
        for kind in guard.due(step):
            steps[kind].append(step)
            guard.fork(fork(step)) if kind == "fork" else guard.look(look(step))
    for kind, grow in (("look", module._LOOKS_GROW), ("fork", module._FORKS_GROW)):
        gaps = np.diff(steps[kind])
        assert len(gaps) >= 2
        assert (gaps[1:] == grow * gaps[:-1]).all()


@each("kind", ["look", "fork"])
def test_the_review_after_a_tightening_comes_at_once(kind):
    guard = trusting()
    step = 500
    if kind == "look":
        assert guard.look(look(step, harm_T=(1, 0, 0, 0)))
    else:
        assert guard.fork(fork(step, lost=1.0))
    assert kind in guard.due(step + 1)
    assert not guard.trusted
    guard.look(look(step + 1)) if kind == "look" else guard.fork(fork(step + 1))
    assert guard.trusted
    assert kind not in guard.due(step + 2)


def test_bounds_that_reach_nothing_become_exact():
    guard = guard_of()
    for step in range(8, 40):
        guard.look(look(step, harm_T=(0, 9, 0, 0)))
        guard.fork(fork(step, lost=9))
    assert guard.exact_T("rows").tolist() == [False, True, False, False]
    assert guard.exact_T("gradients").tolist() == [True] * 4
    guard.trusted = True
    assert guard.summary().endswith(", 5 exact")


def test_a_table_that_is_exact_does_not_collapse():
    guard = guard_of()
    guard.rows_T[1] = guard.gradients_T[1] = module._EXACT_BELOW / 2
    assert guard.look(look(error_T=(0, 5, 0, 0)))[0].factor > 1
    assert guard.fork(fork(error_T=(0, 5, 0, 0)))[0].factor > 1


def story(guard, seed, steps=range(8, 60)):
    """Feed a guard reviews of every kind; return what it decided and where it stood."""
    rng, told = np.random.default_rng(seed), []
    for step in steps:
        harm_T = rng.choice([0, 1e-5, 1e-3, 0.1], 4) * guard.rows_T**2
        lost = float(rng.choice([0, 1e-5, 1e-2]) * guard.gradients_T.max() ** 2)
        error_T = rng.choice([0, 0.01, 0.5], 4)
        for kind in guard.due(step):
            if kind == "look":
                told += guard.look(look(step, harm_T, error_T, spread=1e-4, seed=step))
            else:
                told += guard.fork(fork(step, lost, error_T, spread=1e-4, seed=step))
        told.append((guard.trusted, guard.rows_T.tolist(), guard.gradients_T.tolist()))
    return told


@each("seed", range(5))
def test_the_same_evidence_makes_the_same_decisions(seed):
    assert story(guard_of(), seed) == story(guard_of(), seed)


@each("seed", range(5))
@each("until", [9, 25])
def test_a_restored_guard_continues_identically(seed, until):
    guard, restored = guard_of(), guard_of()
    story(guard, seed, range(8, until))
    restored.restore(json.loads(json.dumps(guard.state(), allow_nan=False)))
    assert restored.state() == guard.state()
    later = range(until, 60)
    assert story(restored, seed + 100, later) == story(guard, seed + 100, later)
    assert restored.state() == guard.state()


@each("seed", range(10))
def test_noise_around_no_harm_neither_leaves_the_budget_nor_flaps(seed):
    """Samples are off by 5 times what is allowed, the mean of 4096 of them by 5 / 64; the interval, three times as
    wide, ends a quarter into what is allowed: not enough to tighten, too much to loosen."""
    guard, decisions = guard_of(), []
    for k in range(60):
        step = 8 + k
        decisions += guard.fork(fork(step, spread=HALF * 5, seed=2 * k + 1000 * seed))
        decisions += guard.look(look(step, spread=HALF * 5, seed=2 * k + 1 + 1000 * seed))
        assert guard.trusted
    assert decisions == []
    assert guard.rows_T.tolist() == guard.gradients_T.tolist() == [1] * 4


@each("seed", range(10))
def test_noise_that_shrinks_with_bounds_settles_within_the_budget(seed):
    """Harm of 3 times the budget at first: it is narrowed until it fits, and then hardly changed any more."""
    guard, rng = guard_of(), np.random.default_rng(seed)
    true_T, outside, directions = np.array([2e-3, 1e-3, 1e-5, 0]), [], []
    for step in range(8, 80):
        harm_T = true_T * guard.rows_T**2
        each = 0.5 * rng.chisquare(1, SAMPLES) * harm_T.sum()
        decisions = guard.look(replace(look(step, harm_T), harm=each))
        directions += [decision.factor > 1 for decision in decisions]
        outside.append((true_T * guard.rows_T**2).sum() > HALF)
    assert not any(outside[1:])
    changes = np.count_nonzero(np.diff(np.array(directions, int)))
    assert changes <= 1, directions


NONSENSE = [math.nan, math.inf, -math.inf]


def spoilt(evidence, name, value):
    """Return evidence with one value that is no number."""
    old = getattr(evidence, name)
    if isinstance(old, float):
        return replace(evidence, **{name: value})
    new = old.copy()
    new[1] = value
    return replace(evidence, **{name: new})


@each("value", NONSENSE)
@each("name", ["loss", "harm", "harm_T", "row_error_T"])
def test_a_look_at_what_is_no_number_tightens_and_ends_the_trust(name, value):
    guard = trusting()
    before = guard.rows_T.copy()
    decisions = guard.look(spoilt(look(10), name, value))
    assert decisions
    assert all(decision.factor < 1 and decision.direction == "rows" for decision in decisions)
    assert all("not finite" in decision.reason for decision in decisions)
    assert guard.rows_T[1] < before[1]
    assert np.isfinite(guard.rows_T).all()
    assert not guard.trusted
    assert guard.due(11) == ["look"]
    json.dumps(guard.state(), allow_nan=False)
    guard.look(look(11))
    assert guard.trusted


@each("value", NONSENSE)
@each("name", ["lost", "learnt", "update_error_T", "slope"])
def test_a_fork_into_what_is_no_number_tightens_and_ends_the_trust(name, value):
    guard = trusting()
    decisions = guard.fork(spoilt(fork(10), name, value))
    assert decisions
    assert all(decision.factor < 1 and decision.direction == "gradients" for decision in decisions)
    assert all("not finite" in decision.reason for decision in decisions)
    assert guard.gradients_T[1] < 1
    assert not guard.trusted
    assert guard.due(11) == ["fork"]
    json.dumps(guard.state(), allow_nan=False)
    guard.fork(fork(11))
    assert guard.trusted


@each("name", ["harm_T", "row_error_T"])
def test_nonsense_of_one_table_tightens_that_table_only(name):
    guard = trusting()
    (decision,) = guard.look(spoilt(look(10), name, math.nan))
    assert decision.tables == ("b",)
    assert guard.rows_T[[0, 2, 3]].tolist() == [1, 1, 1]


def test_nonsense_that_stays_leads_to_exactness():
    guard = trusting()
    for step in range(100, 110):
        guard.look(spoilt(look(step), "harm", math.inf))
        guard.fork(spoilt(fork(step), "lost", math.nan))
    assert guard.exact_T("rows").all()
    assert guard.exact_T("gradients").all()


def test_a_loss_of_nothing_is_no_evidence():
    guard = trusting()
    assert guard.look(look(99, loss=0.0))[0].factor < 1
    assert not guard.trusted


@each("budget", [0, 1, -0.1, math.nan])
def test_a_budget_is_a_share(budget):
    with pytest.raises(
        ConfigError, match=r"^guard\.budget: expected a share between 0 and 1, as 0\.001, got "
    ):
        guard_of(budget)


def test_the_state_of_other_tables_is_refused():
    message = (
        r"^guard: expected the state of 4 tables, got one of 2; the tables of the checkpoint are others$"
    )
    with pytest.raises(ConfigError, match=message):
        guard_of().restore(Guard(("a", "b"), BUDGET).state())
