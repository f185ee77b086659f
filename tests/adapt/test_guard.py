"""The guard keeps what rounding costs within the budget, and forgets nothing in a checkpoint."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from laconic.adapt import AIM, MOST_GRADIENTS_ERROR, MOST_ROWS_ERROR
from laconic.adapt import guard as module
from laconic.adapt.guard import Guard, HarmEstimate, Losses, harm_of
from laconic.errors import ConfigError
from laconic.exchange.noise import RoundingCost
from laconic.exchange.scales import agrees_after
from tests.cases import each

NAMES = ("a", "b", "c", "d")
BUDGET = 0.001
HALF = AIM * BUDGET / 2
"""What rows may cost, and what gradients may."""
LOSS = 0.5
STEPS = [step for step in range(1, 4097) if agrees_after(step)]
LATE = STEPS.index(64)
NEARLY = math.exp(2 * module._WORTH_A_CHANGE) * (1 + 1e-9)
"""What a cost may be off by, because bounds that are nearly right are left alone."""
NOTHING = (0, 0, 0, 0)
NONSENSE = [math.nan, math.inf, -math.inf]


LITTLE = (1e-9,) * 4
"""An error that limits nothing; one of 0 says that no bound was in force."""


def cost(rows=NOTHING, gradients=NOTHING, sent=(1, 1, 1, 1), errors=(LITTLE, LITTLE)):
    """Costs as shares of the loss; errors as shares of the signal, of rows and gradients."""
    figures = (LOSS * np.array(rows), LOSS * np.array(gradients), sent, *errors)
    return RoundingCost(*(np.array(figure_T, float) for figure_T in figures))


def allowed(sent_T, most_T):
    """What tables may cost, for as much a row: so much that they use HALF, if they can.

    ``most_T``: what each costs at the widest bound that it may have, in which case others get the
    rest. The fewer tables that is for, the more they get, so the first level that fits is right.
    """
    sent_T, most_T = np.array(sent_T, float), np.array(most_T, float)
    order = np.argsort(most_T / sent_T)
    for cheap in range(len(order)):
        level = (HALF - most_T[order[:cheap]].sum()) / sent_T[order[cheap:]].sum()
        if level <= (most_T / sent_T)[order[cheap]]:
            break
    return level * sent_T


def guard_of(factor=1.0, budget=BUDGET):
    return Guard(NAMES, budget, {"rows": np.full(4, factor), "gradients": np.full(4, factor)})


def factors(guard):
    return np.concatenate([guard.rows_T, guard.gradients_T])


def exact(guard):
    return np.concatenate([guard.exact_T("rows"), guard.exact_T("gradients")])


def of_each_table(values):
    return st.lists(values, min_size=4, max_size=4)


SHARES = st.one_of(st.just(0.0), st.floats(-12, 6).map(lambda power: 10**power))
ODD = st.one_of(SHARES, SHARES.map(lambda share: -share), st.sampled_from(NONSENSE))
SENT = st.integers(0, 10**6)
FACTORS = st.floats(-11, 0).map(lambda power: 2**power)


LOSSES = st.one_of(st.floats(1e-3, 10), st.sampled_from([0.0, -1.0, *NONSENSE]))


@st.composite
def stories(draw):
    """What ranks tell a guard at the first so many steps after which they agree."""
    made = []
    for step in STEPS[: draw(st.integers(1, 14))]:
        figures = (draw(of_each_table(ODD)), draw(of_each_table(ODD)), draw(of_each_table(SENT)))
        errors = (draw(of_each_table(SHARES)), draw(of_each_table(SHARES)))
        made.append((step, draw(LOSSES), cost(*figures, errors)))
    return made


def tell(guard, story):
    """Return all decisions, and where the guard stood after each review."""
    found = []
    for step, loss, seen in story:
        decisions = guard.review(step, loss, seen)
        found.append((decisions, guard.rows_T.tolist(), guard.gradients_T.tolist()))
    return found


@given(stories(), FACTORS)
def test_bounds_are_never_wider_than_the_plans_and_widen_slowly(story, first):
    guard = guard_of(first)
    for step, loss, seen in story:
        before = factors(guard)
        guard.review(step, loss, seen)
        after = factors(guard)
        assert ((after >= 0) & (after <= 1)).all()
        widens_from = np.repeat([module._WIDENS_FROM[each_of] for each_of in ("rows", "gradients")], 4)
        most = np.where(step < widens_from, before, module._WIDENS_BY * before)
        assert ((after <= most * (1 + 1e-12)) | exact(guard)).all()


def test_bounds_widen_by_two_at_most_and_not_before_enough_was_seen():
    guard, seen = guard_of(2**-9), []
    for step in STEPS[:14]:
        decisions = guard.review(step, LOSS, cost())
        rows, gradients = step >= 32 and seen[-1][0] < 1, step >= 256 and seen[-1][1] < 1
        assert len(decisions) == 4 * rows + 4 * gradients
        seen.append((guard.rows_T[0], guard.gradients_T[0]))
        assert (guard.rows_T == guard.rows_T[0]).all()
        assert (guard.gradients_T == guard.gradients_T[0]).all()
    assert [rows for rows, _ in seen[: STEPS.index(32)]] == [2**-9] * STEPS.index(32)
    assert [rows for rows, _ in seen[STEPS.index(32) :]] == [
        2**-power for power in (8, 7, 6, 5, 4, 3, 2, 1, 0)
    ]
    late = [gradients for _, gradients in seen[STEPS.index(256) :]]
    assert late == [2 ** -(8 - k) for k in range(len(late))]


@given(stories(), FACTORS)
def test_every_change_is_a_decision_and_every_decision_a_change(story, first):
    guard = guard_of(first)
    for step, loss, seen in story:
        before = {"rows": guard.rows_T.copy(), "gradients": guard.gradients_T.copy()}
        decisions = guard.review(step, loss, seen)
        for decision in decisions:
            (name,) = decision.tables
            before[decision.direction][NAMES.index(name)] *= decision.factor
            assert decision.step == step
            assert decision.factor != 1
            assert decision.reason
        assert len({(decision.direction, decision.tables) for decision in decisions}) == len(decisions)
        assert guard.rows_T.tolist() == pytest.approx(before["rows"].tolist(), rel=1e-12)
        assert guard.gradients_T.tolist() == pytest.approx(before["gradients"].tolist(), rel=1e-12)
        json.dumps([decision.factor for decision in decisions], allow_nan=False)


@given(of_each_table(SHARES), of_each_table(st.integers(1, 10**6)), of_each_table(FACTORS))
def test_rows_cost_what_is_allowed_in_proportion_to_the_rows_that_a_table_sends(shares, sent, first):
    """Costs follow squares of bounds; what some tables cannot use of their share, others get."""
    first_T, shares_T = np.array(first), np.array(shares)
    guard = Guard(NAMES, BUDGET, {"rows": first_T, "gradients": np.ones(4)})
    guard.review(64, LOSS, cost(rows=shares, sent=sent))
    # bounds widen by two at most in a review
    allowed_T = allowed(sent, shares_T * (np.minimum(2 * first_T, 1) / first_T) ** 2)
    now_T = shares_T * (guard.rows_T / first_T) ** 2
    bounded_T = guard.rows_T > module._LEAST_FACTOR
    assert (now_T <= NEARLY * allowed_T)[bounded_T].all()
    over_T = bounded_T & (shares_T > NEARLY * allowed_T)
    assert now_T[over_T].tolist() == pytest.approx(allowed_T[over_T].tolist(), rel=1e-6)
    assert now_T[bounded_T].sum() <= NEARLY * HALF
    assert (guard.gradients_T == 1).all()


def test_what_costs_too_much_is_narrowed_with_its_figures_and_nothing_else():
    guard = guard_of()
    (decision,) = guard.review(8, LOSS, cost(rows=(0, 0.01, 0, 0), sent=(1, 3, 1, 1)))
    assert (decision.step, decision.direction, decision.tables) == (8, "rows", ("b",))
    # the others need nothing of their shares
    assert decision.factor == pytest.approx(math.sqrt(HALF / 0.01), rel=1e-12)
    assert guard.rows_T.tolist() == pytest.approx([1, decision.factor, 1, 1], rel=1e-12)
    assert decision.reason == (
        f"narrowed: costs 1.0000% of 1.0000% of the loss, aim is {HALF:.3%}; error is 0.000 of the signal"
    )
    assert guard.gradients_T.tolist() == [1] * 4


def spread(step):
    """Doublings that a run of so many steps has made."""
    return math.log2(step + 1)


def about_right(step):
    """Costs at which all bounds may stay, if they have always been these."""
    off, done = np.array([-0.05, -0.01, 0.01, 0.05]), spread(step)
    return cost(rows=HALF / 4 * (1 + off), gradients=HALF / 4 * done / (done + 4 + off))


@each("step", STEPS)
def test_a_bound_that_is_about_right_is_left_alone(step):
    assert guard_of(0.5).review(step, LOSS, about_right(step)) == []


def follow(guard, per_doubling_T, steps, sent=(1, 1, 1, 1)):
    """Yield what gradients cost at each review: a sum of squares of factors over doublings."""
    done, squares_T = 0.0, np.zeros(4)
    for step in steps:
        squares_T = (
            squares_T
            + (spread(step) - done) * np.where(guard.exact_T("gradients"), 0, guard.gradients_T) ** 2
        )
        done = spread(step)
        yield per_doubling_T * squares_T
        guard.review(step, LOSS, cost(gradients=per_doubling_T * squares_T, sent=sent))


@given(of_each_table(st.floats(-2, 4)), of_each_table(st.integers(1, 100)), FACTORS)
def test_noise_of_gradients_stays_within_twice_its_half_of_the_budget(powers, sent, first):
    """What is within its half once. Tables have their shares, and what others did not use so far."""
    per_doubling_T = HALF * np.array(sent) / sum(sent) * 10.0 ** np.array(powers)
    within = False
    for cost_T in follow(guard_of(first), per_doubling_T, STEPS, sent):
        assert not within or cost_T.sum() <= 2 * NEARLY * HALF
        within = within or cost_T.sum() <= HALF


@each("power", [-1, 0, 1, 2])
def test_noise_of_gradients_uses_its_share_where_it_can(power):
    """Noise at the plan's bounds would cost a tenth to a hundred times its share in a doubling."""
    guard = guard_of(2**-6)
    costs = [float(cost_T.sum()) for cost_T in follow(guard, np.full(4, HALF / 4 * 10.0**power), STEPS)]
    most = 10.0**power * spread(STEPS[-1]) * HALF
    assert costs[-1] > 0.12 * min(most, HALF)
    assert not guard.exact_T("gradients").any()


def test_noise_that_has_used_up_its_share_gets_a_sixteenth_of_the_steady_square():
    """That becomes less the more often steps double, and is little beside what was spent."""
    guard = guard_of()
    decisions = guard.review(64, LOSS, cost(gradients=(4 * HALF, 0, 0, 0)))
    assert [(decision.direction, decision.tables) for decision in decisions] == [("gradients", ("a",))]
    # four times what it may cost, because the other tables cost nothing
    assert guard.gradients_T.tolist() == pytest.approx([math.sqrt(1 / 4 / 16), 1, 1, 1], rel=1e-12)
    assert not guard.exact_T("gradients").any()
    assert guard.summary() == "guard: bounds x1 rows, x1 gradients"


@given(
    of_each_table(st.floats(-3, 5)),
    of_each_table(st.integers(1, 100)),
    of_each_table(st.floats(-11, 0).map(lambda power: 2**power)),
    st.sampled_from([STEPS, STEPS[3:], STEPS[::2], STEPS[LATE:]]),
)
def test_the_next_doubling_stays_within_a_tables_share_or_gets_little(powers, sent, first, steps):
    """A sixteenth of the steady square, but for what is not worth a change; costs are exact here."""
    guard = Guard(NAMES, BUDGET, {"rows": np.ones(4), "gradients": np.array(first)})
    per_doubling_T = HALF * np.array(sent) / sum(sent) * 10.0 ** np.array(powers)
    done, squares_T = 0.0, np.zeros(4)
    for step in steps:
        squares_T = squares_T + (spread(step) - done) * guard.gradients_T**2
        done = spread(step)
        widest_T = np.minimum(2 * guard.gradients_T, 1)
        guard.review(step, LOSS, cost(gradients=per_doubling_T * squares_T, sent=sent))
        # what a table has spent stays spent, however narrow its bound is now
        most_T = per_doubling_T * np.maximum(done * widest_T**2, squares_T)
        allowed_T = allowed(sent, most_T) * (1 + 1e-9)
        square_T = guard.gradients_T**2
        assert np.all(
            (per_doubling_T * (squares_T + square_T) <= allowed_T)
            | (square_T <= NEARLY * allowed_T / per_doubling_T / done / 16)
            | (guard.gradients_T == module._LEAST_FACTOR)
        )
        # and never more than if it had always been that
        assert np.all(square_T <= NEARLY * allowed_T / per_doubling_T / done)


@each("of", ["rows", "gradients"])
@each("step", [1, 8, 64])
@each("first", [1.0, 0.3])
def test_an_error_above_its_limit_is_narrowed_to_it_in_one_review(of, step, first):
    """Whatever the harm; and with its figure. What is below its limit has its limit ahead."""
    limit = {"rows": MOST_ROWS_ERROR, "gradients": MOST_GRADIENTS_ERROR}[of]
    guard, error_T = guard_of(first), limit * np.array([100, 4, 1.1, 0.9])
    errors = (error_T, LITTLE) if of == "rows" else (LITTLE, error_T)
    factor_T, other_T = (
        getattr(guard, f"{each_of}_T") for each_of in (of, {"rows": "gradients", "gradients": "rows"}[of])
    )
    decisions = guard.review(step, LOSS, cost(errors=errors))
    narrowed = [decision for decision in decisions if decision.direction == of]
    assert [decision.tables for decision in narrowed] == [("a",), ("b",)]
    assert [decision.factor for decision in narrowed] == pytest.approx([0.1, 0.5], rel=1e-12)
    for decision, error in zip(narrowed, error_T, strict=False):
        assert decision.reason.startswith("narrowed: costs 0.0000% of ")
        assert decision.reason.endswith(f"; error is {error:.3f} of the signal")
    # ten percent more of the square, or less, is not worth a change
    assert factor_T.tolist() == pytest.approx([first / 10, first / 2, first, first], rel=1e-12)
    other = {"rows": "gradients", "gradients": "rows"}[of]
    widened = 2 if step >= module._WIDENS_FROM[other] else 1
    assert other_T.tolist() == [min(first * widened, 1.0)] * 4


def test_what_a_table_cannot_use_of_its_share_others_get():
    """Two cost little at the plan's bounds, one sends nothing; what they leave is for the last."""
    costs, sent = np.array([HALF / 8, HALF / 16, 0, 9 * HALF]), (5, 3, 0, 2)
    guard = guard_of()
    (decision,) = guard.review(8, LOSS, cost(rows=costs, sent=sent))
    assert (decision.direction, decision.tables) == ("rows", ("d",))
    assert costs[3] * guard.rows_T[3] ** 2 == pytest.approx(HALF * (1 - 1 / 8 - 1 / 16), rel=1e-12)
    assert (costs * guard.rows_T**2).sum() == pytest.approx(HALF, rel=1e-12)


@each("limit", [1, 0.5, 0.25])
def test_what_a_table_must_leave_because_of_its_error_others_get(limit):
    """The first may have only a share of its square: what it costs then is not for the others."""
    costs = np.array([HALF / 4, 9 * HALF, 0, 0])
    guard = guard_of()
    errors = (np.array([MOST_ROWS_ERROR / limit, 1e-9, 1e-9, 1e-9]), LITTLE)
    guard.review(8, LOSS, cost(rows=costs, errors=errors))
    assert guard.rows_T[0] ** 2 == pytest.approx(limit, rel=1e-12)
    assert (costs * guard.rows_T**2).sum() == pytest.approx(HALF, rel=1e-12)


@each("of", ["rows", "gradients"])
@each("at_the_plans", [1.0, 10.0, 3000.0])
def test_bounds_that_cost_nothing_widen_as_far_as_their_error_allows(of, at_the_plans):
    """Errors follow squares of bounds; they end at their limit, in steps of two times at most."""
    limit = {"rows": MOST_ROWS_ERROR, "gradients": MOST_GRADIENTS_ERROR}[of]
    guard, seen, reasons = guard_of(2**-9), [], set()
    for step in STEPS:
        error_T = at_the_plans * limit * getattr(guard, f"{of}_T") ** 2
        errors = (error_T, LITTLE) if of == "rows" else (LITTLE, error_T)
        reasons |= {decision.reason[:9] for decision in guard.review(step, LOSS, cost(errors=errors))}
        seen.append(getattr(guard, f"{of}_T")[0])
        assert (getattr(guard, f"{of}_T") == seen[-1]).all()
    assert reasons == {"widened: "}
    assert seen == sorted(seen)
    assert max(late / early for early, late in pairwise(seen)) == 2
    assert seen[-1] <= min(at_the_plans**-0.5, 1.0) * (1 + 1e-12)
    # what is nearly as wide is not worth a change
    assert seen[-1] > 0.9 * min(at_the_plans**-0.5, 1.0)
    other = {"rows": "gradients", "gradients": "rows"}[of]
    assert (getattr(guard, f"{other}_T") > 0.5).all()


@given(of_each_table(st.floats(-4, 4)), of_each_table(st.floats(-4, 4)), of_each_table(SHARES), FACTORS)
def test_an_error_is_never_left_above_its_limit(rows, gradients, shares, first):
    guard = guard_of(first)
    errors = 10.0 ** np.array([rows, gradients])
    before_2T = np.array([guard.rows_T, guard.gradients_T])
    guard.review(64, LOSS, cost(rows=shares, gradients=shares, errors=errors))
    now_2T = errors * (np.array([guard.rows_T, guard.gradients_T]) / before_2T) ** 2
    limit_21 = np.array([[MOST_ROWS_ERROR], [MOST_GRADIENTS_ERROR]])
    least_2T = np.array([guard.rows_T, guard.gradients_T]) == module._LEAST_FACTOR
    assert ((now_2T <= NEARLY * limit_21) | least_2T).all()


@given(stories(), FACTORS)
def test_where_nothing_was_sent_nothing_changes(story, first):
    guard = guard_of(first)
    for step, loss, seen in story:
        assert guard.review(step, loss, replace(seen, sent_T=np.zeros(4))) == []
    assert (factors(guard) == first).all()


@each("step", [8, 64])
def test_a_table_that_sent_nothing_is_not_judged_by_that(step):
    """There is nothing to allow, and nothing that costs."""
    guard = guard_of()
    assert guard.review(step, LOSS, cost(sent=(1, 0, 5, 0))) == []
    assert (factors(guard) == 1).all()
    seen = cost((0, 9, 0, 9), (0, 9, 0, 9), sent=(1, 0, 5, 0), errors=((0, 9, 0, 9), (0, 9, 0, 9)))
    assert guard.review(2 * step, LOSS, seen) == []
    assert (factors(guard) == 1).all()


@each("step", [32, 64])
def test_a_table_that_sent_nothing_does_not_widen(step):
    guard = guard_of(0.25)
    guard.review(step, LOSS, cost(sent=(1, 0, 5, 0)))
    assert guard.rows_T.tolist() == [0.5, 0.25, 0.5, 0.25]
    assert guard.gradients_T.tolist() == ([0.5, 0.25, 0.5, 0.25] if step >= 256 else [0.25] * 4)


@each("loss", [*NONSENSE, 0.0, -0.1])
def test_a_loss_that_is_no_loss_narrows_everything(loss):
    guard = guard_of(0.5)
    decisions = guard.review(64, loss, cost(rows=(HALF, 0, 0, 0), gradients=(0, HALF, 0, 0)))
    assert len(decisions) == 8
    assert all("not finite" in decision.reason and decision.factor < 0.5 for decision in decisions)
    assert ((factors(guard) > 0) & (factors(guard) < 0.25)).all()
    json.dumps(guard.state(), allow_nan=False)


@each("value", NONSENSE)
@each("name", ["rows_T", "gradients_T"])
def test_nonsense_of_one_table_narrows_that_table_only(name, value):
    guard = guard_of(0.5)
    seen = about_right(8)
    getattr(seen, name)[1] = value
    decisions = guard.review(8, LOSS, seen)
    assert [(decision.direction, decision.tables) for decision in decisions] == [
        ("rows", ("b",)),
        ("gradients", ("b",)),
    ]
    assert (guard.rows_T[[0, 2, 3]] == 0.5).all()
    assert 0 < guard.rows_T[1] < 0.25
    assert 0 < guard.gradients_T[1] < 0.25


def test_nonsense_that_stays_leads_to_exactness_and_sense_leads_back():
    guard = guard_of()
    for step in STEPS[LATE : LATE + 10]:
        guard.review(step, math.nan, cost())
    assert exact(guard).all()
    assert guard.summary().endswith(", 8 exact")
    for step in STEPS[LATE + 10 : LATE + 24]:
        guard.review(step, LOSS, cost())
    assert not exact(guard).any()


@each("direction", ["rows", "gradients"])
@each("share", [10.0, 1e6, 1e100])
def test_a_table_that_became_exact_may_come_back(direction, share):
    """It was off by any amount, once; since then it has cost nothing."""
    guard = guard_of(2**-6)
    guard.review(64, LOSS, cost(**{direction: (share, 0, 0, 0)}))
    assert guard.exact_T(direction).tolist() == [True, False, False, False]
    for step in STEPS[LATE + 1 :]:
        guard.review(step, LOSS, cost())
    assert not guard.exact_T(direction).any()


@each("of", ["rows_T", "gradients_T"])
def test_a_table_that_stays_exact_is_decided_upon_until_no_bound_is_smaller(of):
    """Then never again."""
    guard, made = guard_of(), []
    for step in STEPS:
        seen = cost()
        getattr(seen, of)[1] = math.nan
        made.append(guard.review(step, LOSS, seen))
    tables = [{decision.tables for decision in decisions} for decisions in made]
    assert tables == [{("b",)}] * 3 + [set()] * (len(STEPS) - 3)
    assert guard.rows_T.tolist() == guard.gradients_T.tolist() == [1, module._LEAST_FACTOR, 1, 1]


@given(stories(), FACTORS)
def test_factors_never_fall_below_the_least_and_reasons_say_which_way(story, first):
    guard = guard_of(first)
    for step, loss, seen in story:
        for decision in guard.review(step, loss, seen):
            word = "widened: " if decision.factor > 1 else "narrowed: "
            assert decision.reason.startswith(word) or "not finite" in decision.reason
        assert (factors(guard) >= module._LEAST_FACTOR).all()


@given(of_each_table(SHARES), of_each_table(SHARES))
def test_a_cost_below_zero_is_none(rows, gradients):
    below, none = guard_of(0.25), guard_of(0.25)
    below.review(64, LOSS, cost(rows=[-share for share in rows], gradients=[-share for share in gradients]))
    none.review(64, LOSS, cost())
    assert below.state() == none.state()


@given(stories(), FACTORS)
def test_the_same_figures_make_the_same_decisions(story, first):
    assert tell(guard_of(first), story) == tell(guard_of(first), story)


@given(stories(), st.data(), FACTORS)
def test_a_restored_guard_continues_identically(story, data, first):
    until = data.draw(st.integers(0, len(story)))
    guard, restored = guard_of(first), guard_of()
    tell(guard, story[:until])
    restored.restore(json.loads(json.dumps(guard.state(), allow_nan=False)))
    assert restored.state() == guard.state()
    assert tell(restored, story[until:]) == tell(guard, story[until:])
    assert restored.state() == guard.state()


def test_what_is_done_to_a_state_does_nothing_to_its_guard():
    guard = guard_of()
    state = guard.state()
    state["rows"][0] = state["squares"][0] = 9.0
    assert guard.state() == guard_of().state()


OLD = {
    "rows": [0.5, 0.25, 1.0, 2.0**-13],
    "gradients": [1.0, 0.125, 0.5, 1.0],
    "trusted": True,
    "next": {"look": 24, "fork": 72},
    "interval": {"look": 16.0, "fork": 64.0},
    "passed": {"look": True, "fork": True},
    "harm": {"count": 4096, "mean": 1e-5, "square": 1e-9},
    "lost": {"count": 4096, "mean": 1e-5, "square": 1e-9},
}
"""As the guard that made looks and forks wrote it."""


def test_a_state_of_the_guard_that_made_looks_gives_the_smaller_of_its_factors_and_the_first():
    """What that guard had not trusted yet was exact, whatever its factors."""
    guard = Guard(NAMES, BUDGET, {"rows": np.full(4, 0.3), "gradients": np.full(4, 0.6)})
    for trusted in (True, False):
        guard.restore({**json.loads(json.dumps(OLD)), "trusted": trusted})
        assert guard.rows_T.tolist() == [0.3, 0.25, 0.3, 2.0**-13]
        assert guard.gradients_T.tolist() == [0.6, 0.125, 0.5, 0.6]
    state = guard.state()
    assert (state["doublings"], state["squares"]) == (0, [0] * 4)


def test_a_guard_that_goes_on_from_a_state_of_before_judges_by_costs():
    guard = guard_of()
    guard.restore(json.loads(json.dumps(OLD)))
    assert (guard.rows_T.tolist(), guard.gradients_T.tolist()) == (OLD["rows"], OLD["gradients"])
    assert guard.exact_T("rows").tolist() == [False, False, False, True]
    for step in (1024, 1280, 1536):
        guard.review(step, LOSS, cost(rows=(HALF,) * 4, gradients=(HALF / 4,) * 4))
        assert (factors(guard) <= 1).all()
    assert guard.rows_T[0] < 0.5
    json.dumps(guard.state(), allow_nan=False)


def told(losses, steps):
    """Tell losses what these steps came to."""
    for total, samples in steps:
        losses.add(total, samples)
    return losses


LOSS_SUMS = st.lists(st.tuples(st.floats(0, 1e6), st.integers(0, 10**6)), max_size=12)


def test_the_mean_loss_is_that_of_the_samples_since_the_last_review():
    losses = Losses()
    assert math.isnan(losses.mean)
    losses.begin_anew()
    assert math.isnan(losses.mean)
    told(losses, [(3.0, 4), (1.0, 4)])
    assert math.isnan(losses.mean)
    losses.begin_anew()
    assert losses.mean == 0.5
    told(losses, [(9.0, 3)])
    assert losses.mean == 0.5
    losses.begin_anew()
    assert losses.mean == 3
    losses.begin_anew()  # without a sample, what was known is known
    assert losses.mean == 3


@given(LOSS_SUMS, LOSS_SUMS, st.data())
def test_losses_that_were_saved_between_any_two_steps_go_on_to_the_bit(before, since, data):
    straight = told(Losses(), before)
    straight.begin_anew()
    resumed = Losses()
    resumed.restore(json.loads(json.dumps(straight.state(), allow_nan=False)))
    for step in since:
        straight.add(*step)
        resumed.add(*step)
        if data.draw(st.booleans()):
            saved = json.loads(json.dumps(resumed.state(), allow_nan=False))
            resumed = Losses()
            resumed.restore(saved)
    assert resumed.state() == straight.state()
    for losses in (straight, resumed):
        losses.begin_anew()
    assert resumed.state() == straight.state()
    assert resumed.mean == straight.mean or math.isnan(straight.mean)


@each("state", [{}, {"spans": [[0.9, 1], [1.1, 2]], "recent": [0.5, 10]}])
def test_losses_of_before_begin_anew(state):
    losses = told(Losses(), [(3.0, 4)])
    losses.begin_anew()
    losses.add(1.0, 1)
    losses.restore(state)
    assert losses.state() == Losses().state()
    assert math.isnan(losses.mean)


@each("budget", [0, 1, -0.1, math.nan])
def test_a_budget_is_a_share(budget):
    with pytest.raises(
        ConfigError, match=r"^guard\.budget: expected a share between 0 and 1, as 0\.001, got "
    ):
        guard_of(budget=budget)


def test_the_state_of_other_tables_is_refused():
    message = (
        r"^guard: expected the state of 4 tables, got one of 2; the tables of the checkpoint are others$"
    )
    with pytest.raises(ConfigError, match=message):
        guard_of().restore(Guard(("a", "b"), BUDGET).state())


def test_the_summary_says_how_far_bounds_are_from_the_plans():
    assert guard_of().summary() == "guard: bounds x1 rows, x1 gradients"
    assert guard_of(0.25).summary() == "guard: bounds x0.25 rows, x0.25 gradients"


@given(of_each_table(SHARES), of_each_table(SHARES))
def test_an_estimate_is_the_sum_of_all_tables_within_its_interval(rows, gradients):
    found = harm_of(cost(rows, gradients), LOSS)
    assert found.rows == pytest.approx(sum(rows), rel=1e-9)
    assert found.gradients == pytest.approx(sum(gradients), rel=1e-9)
    assert found.expected == found.rows + found.gradients
    assert found.low <= found.expected <= found.high
    assert found.known == (found.expected > 0)


@each("value", NONSENSE)
@each("name", ["rows_T", "gradients_T"])
def test_an_estimate_of_what_is_no_number_is_infinite(name, value):
    seen = cost(rows=(HALF,) * 4)
    getattr(seen, name)[2] = value
    found = harm_of(seen, LOSS)
    assert found.low == found.expected == found.high == math.inf
    assert found.known
    assert "not a number" in found.line(BUDGET)


@each("loss", [math.inf, -math.inf, 0.0, -0.1])
def test_an_estimate_beside_what_is_no_loss_is_infinite(loss):
    assert harm_of(cost(), loss).expected == math.inf


def test_before_any_step_nothing_is_known():
    found = harm_of(cost(), math.nan)
    assert math.isnan(found.expected)
    assert not found.known


def test_an_estimate_says_whether_it_is_over_the_budget():
    found = HarmEstimate(0.0004, 0.0008)
    line = found.line()
    assert line.startswith("rounding has cost about 0.120% of the loss (")
    assert line.endswith("): 0.040% by rows, 0.080% by their gradients")
    assert found.line(0.002) == line
    assert found.line(0.001) == f"{line}; more than the budget of 0.100%"
    assert found.as_dict() == {"rows": 0.0004, "gradients": 0.0008, "low": found.low, "high": found.high}
