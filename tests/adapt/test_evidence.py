"""Adaptation between steps, in one process that rehearses three ranks: what is due, what is kept, what is said."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest

from laconic.adapt.evidence import AHEAD, Accountant, Adaptation
from laconic.exchange.errors_seen import UpdateError
from laconic.train.checkpoint import Position, load_checkpoint, save_checkpoint
from tests.train.small_runs import batches_of, policy_of, settings_of, state_of, trainer_of
from tests.train.test_checkpoint import assert_equal

GUARDED = ("compression.budget=0.001", "compression.rows.bound=0.5", "compression.gradients.bound=4.0")
KINDS = {
    "linear decay": ("compression.decay.kind=linear", "compression.decay.k=3", "compression.decay.steps=30"),
    "guard": GUARDED,
    "guard, linear decay, warm-up": (
        *GUARDED,
        "compression.decay.kind=linear",
        "compression.decay.k=3",
        "compression.decay.steps=30",
        "train.lr_warmup=17",
    ),
}


class Rehearsed:
    """A run of three rehearsed ranks."""

    def __init__(self, settings):
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


@pytest.mark.parametrize("kind", KINDS)
def test_a_resumed_run_is_the_uninterrupted_one_bit_for_bit(tmp_path, kind):
    """Saved within the decay and between two reviews; the uninterrupted run saves nothing."""
    settings, at = settings_of(*KINDS[kind]), 17
    batches = batches_of(settings, 31)
    straight, first, second = (Rehearsed(settings) for _ in range(3))
    straight.train(batches, 0, 31)
    first.train(batches, 0, at)
    first.adaptation.settle()
    path = save_checkpoint(first.trainer, tmp_path, Position(at), 1, first.policy)
    load_checkpoint(second.trainer, path, second.policy)
    second.train(batches, at, 31)
    assert first.losses + second.losses == straight.losses
    assert first.decisions + second.decisions == straight.decisions
    assert_equal(state_of(second.trainer), state_of(straight.trainer))
    straight.adaptation.settle()
    second.adaptation.settle()
    assert second.policy.state() == straight.policy.state()
    if "guard" in kind:
        assert any(decision["part"] == "guard" and step < at for step, decision in straight.decisions)


def test_bounds_that_are_too_wide_are_narrowed_until_they_are_trusted():
    settings = settings_of(*GUARDED)
    rehearsed = Rehearsed(settings)
    guard = rehearsed.policy.guard
    rehearsed.train(batches_of(settings, 31), 0, 25)
    assert guard.trusted
    assert (guard.rows_T < 1).any()
    assert (guard.gradients_T < 1).any()
    assert guard.summary() in rehearsed.adaptation.summary()
    json.dumps([decision for _, decision in rehearsed.decisions], allow_nan=False)


def test_reviews_change_nothing_but_the_plan():
    """A run whose guard never trusts anything is an exact one, however many reviews it makes."""
    exact = Rehearsed(settings_of("compression.rows=exact", "compression.gradients=exact"))
    settings = settings_of(*GUARDED)
    reviewed = Rehearsed(settings)
    reviewed.policy.warmup_steps = 10**6
    batches = batches_of(settings, 31)
    exact.train(batches, 0, 25)
    reviewed.train(batches, 0, 25)
    assert reviewed.decisions
    assert reviewed.losses == exact.losses
    assert_equal(state_of(reviewed.trainer), state_of(exact.trainer))
    ledgers = [run.trainer.rows.ledger.rows() for run in (reviewed, exact)]
    assert ledgers[0] == ledgers[1]
    assert reviewed.adaptation.review_bytes > 0
    assert exact.adaptation.review_bytes == 0


def test_there_is_no_review_without_enough_batches_ahead():
    settings = settings_of(*GUARDED)
    rehearsed = Rehearsed(settings)
    assert rehearsed.adaptation.ahead == AHEAD
    rehearsed.train(batches_of(settings, 8 + AHEAD - 1), 0, 8 + AHEAD - 1)
    assert rehearsed.decisions == []
    assert rehearsed.adaptation.review_bytes == 0
    assert not rehearsed.policy.guard.trusted


def test_a_run_that_nothing_adapts_neither_pauses_nor_looks_ahead():
    settings = settings_of("compression.decay.kind=linear", "compression.decay.steps=9")
    adaptation = Rehearsed(settings).adaptation
    assert adaptation.ahead == 0
    assert not any(adaptation.pauses(step) for step in range(1, 1000))
    assert adaptation.summary() == ""


def test_a_step_pauses_where_something_is_due():
    guarded = Rehearsed(settings_of(*GUARDED)).adaptation
    assert [step for step in range(1, 10) if guarded.pauses(step)] == [8, 9]


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
