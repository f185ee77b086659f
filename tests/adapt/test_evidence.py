"""Adaptation between steps, in a process that rehearses three ranks: what is due and kept."""

from __future__ import annotations

import json
from itertools import pairwise

import numpy as np
import pytest

from laconic.adapt.evidence import Accountant, Adaptation
from laconic.exchange.errors_seen import UpdateError
from laconic.exchange.scales import agrees_after
from laconic.train.checkpoint import Position, load_checkpoint, save_checkpoint
from tests.train.small_runs import batches_of, policy_of, settings_of, state_of, trainer_of
from tests.train.test_checkpoint import assert_equal

WIDE = ("compression.rows.bound=0.5", "compression.gradients.bound=4.0")
GUARDED = ("compression.budget=0.001", *WIDE)
# so little that even harmless bounds of so small a model are too wide
STRICT = ("compression.budget=0.0000001", *WIDE)
FREE = ("compression.budget=0.9", "compression.rows.bound=0.0001", "compression.gradients.bound=0.01")
KINDS = {
    "linear decay": ("compression.decay.kind=linear", "compression.decay.k=3", "compression.decay.steps=30"),
    "guard": GUARDED,
    "strict guard": STRICT,
    "strict guard, linear decay, warm-up": (
        *STRICT,
        "compression.decay.kind=linear",
        "compression.decay.k=3",
        "compression.decay.steps=30",
        "train.lr_warmup=17",
    ),
}


class Rehearsed:
    """A run of three rehearsed ranks."""

    def __init__(self, settings):
        self.settings = settings
        self.policy = policy_of(settings)
        self.trainer = trainer_of(settings, self.policy, rehearsed=3)
        self.adaptation = Adaptation(self.trainer, self.policy)
        self.decisions, self.losses = [], []

    def train(self, batches, first, last):
        for k in range(first, last):
            loss, _ = self.trainer.step(batches[k])
            self.losses.append(loss.item())
            coming = batches[k + 1 : k + 1 + self.adaptation.ahead]
            made = self.adaptation.after(k + 1, loss.item(), len(batches[k]), coming)
            self.decisions += [(k + 1, decision) for decision in made]


def trained(settings, steps):
    run = Rehearsed(settings)
    run.train(batches_of(settings, steps), 0, steps)
    return run


@pytest.mark.parametrize("kind", KINDS)
def test_a_resumed_run_is_the_uninterrupted_one_bit_for_bit(tmp_path, kind):
    """Saved within the decay and between two reviews; the uninterrupted run saves nothing."""
    settings, at, end = settings_of(*KINDS[kind], "data.samples=3000"), 17, 34
    batches = batches_of(settings, end)
    straight, first, second = (Rehearsed(settings) for _ in range(3))
    straight.train(batches, 0, end)
    first.train(batches, 0, at)
    first.adaptation.settle()
    path = save_checkpoint(first.trainer, tmp_path, Position(at), 1, first.policy)
    load_checkpoint(second.trainer, path, second.policy)
    second.train(batches, at, end)
    assert first.decisions + second.decisions == straight.decisions
    assert first.losses + second.losses == straight.losses
    assert_equal(state_of(second.trainer), state_of(straight.trainer))
    assert second.adaptation.estimate() == straight.adaptation.estimate()
    straight.adaptation.settle()
    second.adaptation.settle()
    assert second.policy.state() == straight.policy.state()
    if "guard" in kind:
        assert any(step > at for step, _ in straight.decisions)


def test_bounds_that_are_far_too_wide_begin_harmless_and_are_narrowed_to_the_budget():
    run = trained(settings_of(*STRICT, "data.samples=5000"), 64)
    guard, budget = run.policy.guard, run.policy.guard.budget
    narrowed = [decision for _, decision in run.decisions if decision["factor"] < 1]
    assert {decision["direction"] for decision in narrowed} == {"rows", "gradients"}
    assert (guard.rows_T < 1 / 64).any()
    assert (guard.gradients_T < 1 / 64).any()
    assert run.adaptation.estimate().rows < budget
    assert guard.summary() in run.adaptation.summary()


def test_a_decision_says_what_is_written_down():
    run = trained(settings_of(*STRICT), 16)
    assert run.decisions
    for step, decision in run.decisions:
        assert agrees_after(step)
        assert {*decision} == {"part", "step", "direction", "tables", "factor", "reason"}
        assert (decision["part"], decision["step"]) == ("guard", step)
        assert {*decision["tables"]} <= {"c0", "c1", "c2", "c3"}
        assert "of the loss" in decision["reason"]
    json.dumps([decision for _, decision in run.decisions], allow_nan=False)


def test_a_guard_that_finds_nothing_to_change_leaves_a_run_as_it_is():
    """Bounds are finer than those of the default, and nearly all of the loss is allowed."""
    guarded, plain = (trained(settings_of(*FREE[k:]), 25) for k in (0, 1))
    assert guarded.decisions == []
    assert (guarded.policy.guard.rows_T == 1).all()
    assert guarded.losses == plain.losses
    assert_equal(state_of(guarded.trainer), state_of(plain.trainer))
    ledgers = [run.trainer.rows.ledger.rows() for run in (guarded, plain)]
    assert ledgers[0] == ledgers[1]
    assert guarded.adaptation.review_bytes == plain.adaptation.review_bytes == 0


def test_a_guard_does_not_judge_a_warm_up_in_which_nothing_is_rounded():
    settings = settings_of(*STRICT)
    warming, exact = (
        Rehearsed(settings),
        Rehearsed(settings_of("compression.rows=exact", "compression.gradients=exact")),
    )
    warming.policy.warmup_steps = 10**6
    for run in (warming, exact):
        run.train(batches_of(settings, 25), 0, 25)
    assert warming.decisions == []
    assert warming.losses == exact.losses
    assert_equal(state_of(warming.trainer), state_of(exact.trainer))
    assert not warming.adaptation.estimate().known


def test_a_run_knows_what_rounding_has_cost_whether_it_has_a_guard_or_not():
    narrow, wide = (trained(settings_of(*bounds), 16).adaptation for bounds in (FREE[1:], WIDE))
    for found in (narrow.estimate(), wide.estimate()):
        assert found.known
        assert 0 < found.rows < np.inf
        assert 0 < found.gradients < np.inf
        assert found.low <= found.expected <= found.high
    assert narrow.estimate().rows < wide.estimate().rows / 100
    assert narrow.estimate().gradients < wide.estimate().gradients / 100


def test_a_run_whose_rows_travel_exactly_has_nothing_to_estimate():
    run = trained(settings_of("compression.rows=exact", "compression.gradients=exact"), 8)
    assert not run.adaptation.estimate().known


def test_the_loss_that_costs_are_shares_of_is_the_mean_since_ranks_last_agreed():
    settings = settings_of(*GUARDED)
    run = Rehearsed(settings)
    run.train(batches_of(settings, 16), 0, 16)
    assert run.policy.losses.mean == pytest.approx(np.mean(run.losses[8:16]), rel=1e-12)


def test_sums_of_losses_do_not_depend_on_how_often_ranks_share_them():
    """Ranks also share losses before a checkpoint; here at no other time, often and always."""
    settings, runs = settings_of(*GUARDED), []
    batches = batches_of(settings, 27)
    for shared in ((), (3, 9, 11, 17, 19), range(27)):
        run = Rehearsed(settings)
        for k in range(27):
            run.train(batches, k, k + 1)
            if k in shared:
                run.adaptation.settle()
        run.adaptation.settle()
        runs.append(run)
    once, *others = runs
    assert once.policy.losses.mean == pytest.approx(np.mean(once.losses[8:16]), rel=1e-12)
    for run in others:
        assert run.policy.state() == once.policy.state()
        assert run.decisions == once.decisions
        assert run.losses == once.losses


class Gathered:
    """A subject of three ranks, of which the others have other losses of other numbers."""

    def gather(self, value):
        return [value, *([(k * k * loss, k * count) for loss, count in value] for k in (2, 3))]


def test_losses_are_added_up_step_by_step_over_all_ranks():
    policy = policy_of(settings_of())
    adaptation, losses = Adaptation(Gathered(), policy), [0.1, 0.2, 0.3]
    for k, loss in enumerate(losses):
        adaptation.after(k + 1, loss, 10 + k, ())
    # reviewed after 1, 2 and 4 steps; without a guard too
    assert policy.losses.mean == pytest.approx(0.2 * 14 / 6, rel=1e-12)
    adaptation.settle()
    assert policy.losses.state() == {
        "mean": policy.losses.mean,
        "total": sum(k * k * (0.3 * 12) for k in (1, 2, 3)),
        "samples": 72,
    }
    adaptation.settle()
    assert policy.losses.state()["samples"] == 72


def test_a_run_that_nothing_adapts_neither_pauses_nor_looks_ahead():
    settings = settings_of("compression.decay.kind=linear", "compression.decay.steps=9")
    adaptation = Rehearsed(settings).adaptation
    assert adaptation.ahead == 0
    assert not any(adaptation.pauses(step) for step in range(1, 1000))
    assert adaptation.summary() == ""


def test_a_step_pauses_where_something_is_due():
    guarded = Rehearsed(settings_of(*GUARDED)).adaptation
    assert guarded.ahead == 0
    assert [step for step in range(1, 1000) if guarded.pauses(step)] == [
        *(1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 768),
    ]


def test_the_economy_is_reviewed_at_intervals_that_double_until_they_are_long():
    due = [step for step in range(1, 4000) if Accountant.due(step)]
    assert due[:7] == [10, 30, 70, 150, 310, 630, 1270]
    assert {later - earlier for earlier, later in pairwise(due[7:])} == {640}


def test_a_watch_sees_wide_bounds_err_more():
    errors = []
    for bound in (0.1, 1.0):
        settings = settings_of(f"compression.gradients.bound={bound}")
        trainer = trainer_of(settings, rehearsed=3)
        watch = UpdateError(4)
        trainer.rows.observe(watch)
        trainer.step(batches_of(settings, 1)[0])
        errors.append(watch.sums_4T[3].sum())
    assert 0 < errors[0] < errors[1]
