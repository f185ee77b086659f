"""The plan of the moment: schedule, guard and economy together, the same object until one of them changes."""

from __future__ import annotations

import json

import numpy as np
import pytest

from laconic import Compression
from laconic.adapt import BUDGET
from laconic.adapt.adaptive import CAST_FROM, AdaptivePolicy, make_adaptive_policy
from laconic.adapt.decay import Decay
from laconic.adapt.economy import CHOICES, Economy, RankCosts
from laconic.adapt.guard import Guard
from laconic.adapt.settings import _WIDE
from laconic.codecs import BoundedRows, Cast, Lossless
from laconic.config import parse
from laconic.cost.link import CodecCost, Link
from laconic.errors import FormatError
from laconic.exchange.exchange_plan import ExchangePlan, TableCodecs
from laconic.exchange.noise import RoundingCost
from laconic.train.settings import RunSettings
from tests.cases import each

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


def test_a_policy_that_nothing_adapts_hands_out_the_plan_itself():
    policy = AdaptivePolicy(PLAN)
    assert policy.plan_for(0) == PLAN
    assert policy.plan_for(0) is policy.plan_for(10**6)


def test_a_plan_is_the_same_object_until_something_changes():
    economy = Chosen(("bounded",) * 3, ("bounded",) * 3)
    policy = AdaptivePolicy(
        PLAN, decay=Decay(kind="step", k=3, steps=100), guard=Guard(NAMES, BUDGET), economy=economy
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


def test_the_exact_plan_codes_ids_as_the_plan_does():
    plan = ExchangePlan(PLAN.tables, coded_ids=False)
    assert not AdaptivePolicy(plan, warmup_steps=1).plan_for(0).coded_ids
    assert not AdaptivePolicy(plan, decay=Decay(kind="linear", k=2, steps=9)).plan_for(0).coded_ids


def test_the_guard_scales_each_direction_and_makes_tables_exact():
    policy = AdaptivePolicy(PLAN, decay=Decay(kind="constant", k=2, steps=10), guard=Guard(NAMES, BUDGET))
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
    policy = AdaptivePolicy(plan, guard=Guard(NAMES, BUDGET), economy=Chosen(("cast",) * 3, ("bounded",) * 3))
    policy.guard.rows_T[0] = policy.guard.gradients_T[1] = 0
    found = policy.plan_for(0)
    assert found.tables[0].forward is None
    assert found.tables[1].backward is None


def test_a_cast_that_a_narrower_bound_forbids_is_bounded_instead():
    """The economy chose it while bounds were wide; float16 would break what the guard asks for now."""
    plan = ExchangePlan((TableCodecs(ROWS, GRADIENTS),) * 3)
    policy = AdaptivePolicy(plan, guard=Guard(NAMES, BUDGET), economy=Chosen(("cast",) * 3, ("cast",) * 3))
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
    guard, economy = Guard(NAMES, BUDGET), Economy(NAMES)
    return AdaptivePolicy(PLAN, decay=Decay(kind="linear", k=3, steps=12), guard=guard, economy=economy)


def test_a_restored_policy_hands_out_the_same_plans():
    policy, restored = full_policy(), full_policy()
    policy.losses.add(5.7, 10)
    policy.losses.begin_anew()
    policy.losses.add(1.0, 2)
    policy.economy.review(5, measured("cast", "bounded"))
    policy.guard.rows_T[:] = [0.5, 0.25, 1]
    restored.restore(json.loads(json.dumps(policy.state(), allow_nan=False)))
    assert restored.plan_for(6) == policy.plan_for(6) != PLAN
    assert restored.losses.mean == policy.losses.mean == pytest.approx(0.57, rel=1e-12)
    seen = RoundingCost(np.array([0.1, 0, 0]), np.zeros(3), np.ones(3), np.zeros(3), np.zeros(3))
    for either in (policy, restored):
        either.guard.review(8, 0.57, seen)
        either.economy.review(9, measured("cast", "exact"))
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


def test_a_policy_without_a_loss_yet_says_none():
    policy = AdaptivePolicy(PLAN)
    assert np.isnan(policy.losses.mean)
    assert policy.state() == {"losses": {"total": 0, "samples": 0}}
    policy.losses.add(0.5, 1)
    policy.losses.begin_anew()
    assert policy.state() == {"losses": {"mean": 0.5, "total": 0, "samples": 0}}
    policy.restore({})
    assert np.isnan(policy.losses.mean)


def test_a_state_from_before_is_restored_unless_it_has_what_is_gone():
    policy = full_policy()
    state = json.loads(json.dumps(policy.state()))
    # as the guard that made looks and forks had them, and a closed loop whether it was used or not
    state["losses"] = {"spans": [[0.9, 1], [1.1, 2]], "recent": [0.5, 10]}
    state["guard"] = {
        "rows": [0.5, 0.25, 1.0],
        "gradients": [1.0, 0.5, 1.0],
        "trusted": True,
        "next": {"look": 24, "fork": 72},
        "interval": {"look": 16.0, "fork": 64.0},
        "passed": {"look": True, "fork": True},
        "harm": {"count": 9, "mean": 0.0, "square": 0.0},
        "lost": {"count": 9, "mean": 0.0, "square": 0.0},
    }
    state["economy"]["step"] = 5
    restored = full_policy()
    restored.restore(state)
    assert bounds(restored.plan_for(12)) == [0.02, None, None]
    assert np.isnan(restored.losses.mean)
    assert restored.state()["economy"] == policy.state()["economy"]
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


def made(*overrides, ranks=2):
    """Return the policy of a run's settings, and the plan that it may not exceed."""
    settings = parse('[data]\nkind = "synthetic"', RunSettings, overrides).compression.effective()
    return make_adaptive_policy(settings, NAMES, ranks), settings.compression().policy(NAMES).plan_for(0)


DEFAULT = Compression().policy(NAMES).plan_for(0)
DIRECTIONS = ("forward", "backward")
AUTO = "compression.policy=auto"


def test_auto_begins_at_the_bounds_of_the_default_and_is_allowed_far_wider_ones():
    policy, ceiling = made(AUTO)
    plan = policy.plan_for(0)
    for direction, wide, share in zip(DIRECTIONS, _WIDE.values(), (1, 0.5), strict=True):
        first = [share * bound for bound in bounds(DEFAULT, direction)]
        assert bounds(plan, direction) == pytest.approx(first, rel=1e-12)
        assert bounds(ceiling, direction) == [wide] * 3
    assert [codecs.by_rows for codecs in plan.tables] == [DIRECTIONS] * 3
    assert policy.guard.budget == BUDGET


@each("sent", [np.ones(3), np.array([1.0, 50.0, 900.0])])
def test_auto_widens_bounds_that_cost_nothing_up_to_the_plans(sent):
    policy, ceiling = made(AUTO)
    seen, none_T, little_T = [], np.zeros(3), np.full(3, 1e-9)
    for step in (1, 2, 4, 8, 16, *(2**k for k in range(5, 20))):
        policy.guard.review(step, 0.5, RoundingCost(none_T, none_T, sent, little_T, little_T))
        seen.append(bounds(policy.plan_for(step)))
        for direction in DIRECTIONS:
            pairs = zip(bounds(policy.plan_for(step), direction), bounds(ceiling, direction), strict=True)
            assert all(bound <= most for bound, most in pairs)
    assert seen == sorted(seen)
    # what is nearly as wide is not worth a change
    for direction, wide in zip(DIRECTIONS, _WIDE.values(), strict=True):
        assert min(bounds(policy.plan_for(2**20), direction)) > 0.9 * wide


def test_a_plan_that_is_finer_than_the_default_begins_at_its_own_bounds():
    fine = ("compression.rows.bound=0.0001", "compression.gradients.bound=0.01")
    policy, ceiling = made(AUTO, *fine)
    assert policy.plan_for(0) == ceiling
    one = made(AUTO, fine[0])[0].plan_for(0)
    assert bounds(one) == [0.0001] * 3
    assert bounds(one, "backward") == pytest.approx([0.03] * 3, rel=1e-12)


def test_an_exception_begins_no_wider_than_the_default_either():
    policy, _ = made(
        "compression.budget=0.01",
        "compression.tables.a.rows.bound=0.2",
        "compression.tables.b.rows.bound=0.0001",
    )
    assert bounds(policy.plan_for(0)) == pytest.approx([0.0015, 0.0001, 0.0015], rel=1e-12)


@each("of", ["rows.relative_to=none", "rows.relative_to=rms", "gradients.relative_to=none"])
def test_a_bound_that_does_not_compare_with_the_default_begins_far_below_but_not_exact(of):
    """Nothing says what an absolute bound does, or a share of something else."""
    direction = "forward" if of.startswith("rows") else "backward"
    name = of.partition(".")[0]
    policy, ceiling = made("compression.budget=0.01", f"compression.{of}", f"compression.{name}.bound=0.3")
    first, most = (bounds(plan, direction) for plan in (policy.plan_for(0), ceiling))
    assert most == [0.3] * 3
    assert all(0 < bound <= 0.3 / 64 for bound in first)
    assert {getattr(codecs, direction).relative_to for codecs in policy.plan_for(0).tables} == {
        None if of.endswith("none") else "rms"
    }


def test_codecs_without_a_bound_stay_as_they_are_under_a_guard():
    policy, ceiling = made(
        "compression.budget=0.01",
        "compression.rows=int8",
        "compression.tables.a.gradients=lossless",
        "compression.tables.b.gradients=exact",
        "compression.gradients.bound=0.01",
    )
    plan = policy.plan_for(0)
    assert plan == ceiling
    assert {codecs.forward for codecs in plan.tables} == {Cast("int8")}
    assert [codecs.backward for codecs in plan.tables][:2] == [Lossless(), None]


def test_a_run_without_a_budget_has_no_guard_and_is_what_it_says():
    policy, ceiling = made("compression.rows.bound=0.4")
    assert policy.guard is None
    assert policy.plan_for(0) == ceiling
    assert policy.plan_for(0).tables[0].forward.bound == 0.4


def test_one_rank_has_nobody_to_save_for():
    assert made(AUTO)[0].economy is not None
    assert made(AUTO, ranks=1)[0].economy is None
