"""The plan of the moment: schedule, guard and economy together, the same object until one of them changes."""

from __future__ import annotations

import json

import numpy as np
import pytest

from laconic.adapt.adaptive import CAST_FROM, AdaptivePolicy
from laconic.adapt.decay import Decay
from laconic.adapt.economy import CHOICES, Economy, RankCosts
from laconic.adapt.guard import Guard, Losses
from laconic.codecs import BoundedRows, Cast
from laconic.cost.link import CodecCost, Link
from laconic.errors import FormatError
from laconic.exchange.exchange_plan import ExchangePlan, TableCodecs

NAMES = ("a", "b", "c")
ROWS = BoundedRows(0.04, relative_to="range")
GRADIENTS = BoundedRows(0.5, relative_to="rms", rounding="unbiased")
PLAN = ExchangePlan((TableCodecs(ROWS, GRADIENTS), TableCodecs(Cast("int8"), None), TableCodecs()))
EXACT = ExchangePlan.exact(3)


class Chosen:
    """An economy that has decided."""

    def __init__(self, forward, backward):
        self.choices = {"forward": forward, "backward": backward}

    def choice(self, direction):
        return self.choices[direction]


def bounds(plan, direction="forward"):
    return [getattr(getattr(codecs, direction), "bound", None) for codecs in plan.tables]


def trusted_guard():
    guard = Guard(NAMES, 0.001)
    guard.trusted = True
    return guard


def test_a_policy_that_nothing_adapts_hands_out_the_plan_itself():
    policy = AdaptivePolicy(PLAN)
    assert policy.plan_for(0) == PLAN
    assert policy.plan_for(0) is policy.plan_for(10**6)


def test_a_plan_is_the_same_object_until_something_changes():
    economy = Chosen(("bounded",) * 3, ("bounded",) * 3)
    policy = AdaptivePolicy(
        PLAN, decay=Decay(kind="step", k=3, steps=100), guard=trusted_guard(), economy=economy
    )
    first = policy.plan_for(0)
    assert policy.plan_for(9) is first
    later = policy.plan_for(10)
    assert later is not first
    assert policy.plan_for(19) is later
    policy.guard.rows_T[0] /= 2
    tightened = policy.plan_for(19)
    assert tightened is not later
    assert policy.plan_for(19) is tightened
    economy.choices["backward"] = ("exact",) * 3
    changed = policy.plan_for(19)
    assert changed is not tightened
    assert policy.plan_for(19) is changed
    assert len({plan.digest for plan in (first, later, tightened, changed)}) == 4


def test_a_decay_scales_the_bounds_of_rows_only():
    policy = AdaptivePolicy(PLAN, decay=Decay(kind="linear", k=3, steps=64))
    assert bounds(policy.plan_for(0)) == [0.04 * 3, None, None]
    assert bounds(policy.plan_for(32)) == [0.04 * 2, None, None]
    assert policy.plan_for(64) == PLAN
    for step in (0, 32, 64):
        assert bounds(policy.plan_for(step), "backward") == [0.5, None, None]
        assert policy.plan_for(step).tables[1:] == PLAN.tables[1:]


def test_the_warm_up_is_exact():
    policy = AdaptivePolicy(PLAN, warmup_steps=5, decay=Decay(kind="constant", k=2, steps=10))
    assert policy.plan_for(4) == EXACT
    assert policy.plan_for(0) is policy.plan_for(4)
    assert bounds(policy.plan_for(5)) == [0.08, None, None]
    assert bounds(policy.candidate.plan_for(0)) == [0.08, None, None]


def test_the_exact_plan_codes_ids_as_the_plan_does():
    plan = ExchangePlan(PLAN.tables, coded_ids=False)
    assert not AdaptivePolicy(plan, warmup_steps=1).plan_for(0).coded_ids
    assert not AdaptivePolicy(plan, decay=Decay(kind="linear", k=2, steps=9)).plan_for(0).coded_ids


def test_nothing_is_bounded_before_the_guard_trusts_it_except_to_be_tried():
    policy = AdaptivePolicy(PLAN, guard=Guard(NAMES, 0.001))
    assert policy.plan_for(100) == EXACT
    assert policy.candidate.plan_for(100) == PLAN
    assert policy.plan_for(100) == EXACT
    policy.guard.trusted = True
    assert policy.plan_for(100) == PLAN
    assert policy.exact.plan_for(100) == EXACT
    assert policy.plan_for(100) == PLAN


def test_the_guard_scales_each_direction_and_makes_tables_exact():
    policy = AdaptivePolicy(PLAN, decay=Decay(kind="constant", k=2, steps=10), guard=trusted_guard())
    policy.guard.rows_T[:] = [0.5, 0.5, 0.5]
    policy.guard.gradients_T[:] = [0.25, 1, 1]
    plan = policy.plan_for(0)
    assert bounds(plan) == [0.04 * 2 * 0.5, None, None]
    assert bounds(plan, "backward") == [0.125, None, None]
    assert plan.tables[1].forward == Cast("int8")  # has no bound, and the guard has nothing against it
    policy.guard.rows_T[:2] = 2.0**-13
    plan = policy.plan_for(0)
    assert [codecs.forward for codecs in plan.tables] == [None, None, None]
    assert bounds(plan, "backward") == [0.125, None, None]


def test_the_economy_chooses_exact_cast_or_bounded_by_table_and_direction():
    plan = ExchangePlan((TableCodecs(ROWS, GRADIENTS),) * 3)
    economy = Chosen(("exact", "cast", "bounded"), ("bounded", "exact", "cast"))
    found = AdaptivePolicy(plan, economy=economy).plan_for(0)
    half = Cast("fp16")
    assert [codecs.forward for codecs in found.tables] == [None, half, ROWS]
    assert [codecs.backward for codecs in found.tables] == [GRADIENTS, None, half]


def test_the_economy_does_not_overrule_the_guard():
    plan = ExchangePlan((TableCodecs(ROWS, GRADIENTS),) * 3)
    policy = AdaptivePolicy(plan, guard=trusted_guard(), economy=Chosen(("cast",) * 3, ("bounded",) * 3))
    policy.guard.rows_T[0] = policy.guard.gradients_T[1] = 0
    found = policy.plan_for(0)
    assert found.tables[0].forward is None
    assert found.tables[1].backward is None
    policy.guard.trusted = False
    assert policy.plan_for(0) == EXACT


def test_a_cast_that_a_narrower_bound_forbids_is_bounded_instead():
    """The economy chose it while bounds were wide; float16 would break what the guard asks for now."""
    plan = ExchangePlan((TableCodecs(ROWS, GRADIENTS),) * 3)
    policy = AdaptivePolicy(plan, guard=trusted_guard(), economy=Chosen(("cast",) * 3, ("cast",) * 3))
    assert {codecs.forward for codecs in policy.plan_for(0).tables} == {Cast("fp16")}
    policy.guard.rows_T[0] = CAST_FROM / ROWS.bound * 0.99
    forward = [codecs.forward for codecs in policy.plan_for(0).tables]
    assert forward[0].bound == pytest.approx(CAST_FROM * 0.99)
    assert forward[1:] == [Cast("fp16")] * 2


def test_what_the_economy_chooses_from_has_every_table_compressed():
    policy = AdaptivePolicy(
        PLAN, decay=Decay(kind="constant", k=2, steps=10), economy=Chosen(("exact",) * 3, ("exact",) * 3)
    )
    assert policy.plan_for(0) == EXACT
    assert bounds(policy.fully_compressed_plan(0)) == [0.08, None, None]
    assert bounds(policy.fully_compressed_plan(0), "backward") == [0.5, None, None]


def measured(forward, backward):
    """All choices of table ``a`` but one take a second; the other tables cost nothing however they travel."""
    free = (CodecCost(0, 0, 0),) * 3
    costs = [
        (tuple(CodecCost(float(choice != best), 0, 0) for choice in CHOICES), free, free)
        for best in (forward, backward)
    ]
    return [RankCosts(Link(1e-4, 1e9), *costs)]


def full_policy():
    guard, economy = Guard(NAMES, 0.001), Economy(NAMES)
    return AdaptivePolicy(PLAN, decay=Decay(kind="linear", k=3, steps=12), guard=guard, economy=economy)


def test_a_restored_policy_hands_out_the_same_plans():
    policy, restored = full_policy(), full_policy()
    for step, loss in enumerate([0.9, 0.7, 0.6, 0.58] + [0.57] * 11, start=1):
        policy.losses.add(step, loss)
    policy.economy.review(5, measured("cast", "bounded"))
    policy.guard.trusted = True
    policy.guard.rows_T[:] = [0.5, 0.25, 1]
    restored.restore(json.loads(json.dumps(policy.state(), allow_nan=False)))
    assert restored.plan_for(6) == policy.plan_for(6) != PLAN
    assert restored.losses.slope() == policy.losses.slope() > 0
    for each in (policy, restored):
        each.economy.review(9, measured("cast", "exact"))
    assert restored.plan_for(9) == policy.plan_for(9)
    assert restored.state() == policy.state()
    assert 1 < restored.multiplier(9) < 3


def test_parts_that_one_side_lacks_begin_anew():
    policy = full_policy()
    policy.restore({})
    assert policy.state() == full_policy().state()
    bare = AdaptivePolicy(PLAN)
    bare.restore(full_policy().state())
    assert bare.plan_for(0) == PLAN


def test_a_state_from_before_is_restored_unless_it_has_what_is_gone():
    policy = full_policy()
    policy.losses.add(1, 0.5)
    state = json.loads(json.dumps(policy.state()))
    state["losses"]["recent"] = [
        0.5,
        10,
    ]  # as versions with a closed loop wrote it, whether they used one or not
    state["economy"]["step"] = 5
    restored = full_policy()
    restored.restore(state)
    assert restored.state() == policy.state()
    loop = {"observations": 1, "fast": 0.5, "slow": 0.5, "largest_rate": 0.0, "share": 1.0}
    for part, of, said in (
        ("decay", loop, "narrowed bounds by a closed loop"),
        ("axes", {"dim": 1, "data": "AACAPw=="}, "rounded rows along principal axes"),
        ("axes", {}, "rounded rows along principal axes"),  # none were found yet
    ):
        with pytest.raises(
            FormatError, match=rf"^checkpoint: its run {said}, which is gone; train anew, or "
        ):
            full_policy().restore({**state, part: of})


def test_a_slope_is_what_a_doubling_of_steps_takes_off_the_loss_per_e_fold():
    losses = Losses()
    assert losses.slope() == 0
    losses.add(1, 0.8)
    assert losses.slope() == 0
    losses.add(2, 0.5)
    losses.add(3, 0.3)
    assert losses.slope() == pytest.approx((0.8 - 0.4) / 0.4 / np.log(2))


def test_a_loss_that_rises_or_is_nothing_has_no_slope():
    rising, zero = Losses(), Losses()
    for step, (one, other) in enumerate([(0.1, 0.1), (0.9, 0.0)], start=1):
        rising.add(step, one)
        zero.add(step, other)
    assert rising.slope() == zero.slope() == 0
