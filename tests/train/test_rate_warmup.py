"""Learning rates rise over the first steps, in both optimizers, whatever comes in between."""

from __future__ import annotations

import pytest
import torch

from laconic.train.checkpoint import Position, load_checkpoint, save_checkpoint
from laconic.train.trainer import Snapshot
from tests.train.small_runs import batches_of, dense_rates, row_rate, settings_of, state_of, trainer_of
from tests.train.test_checkpoint import assert_equal

RATES = ("embeddings.lr=0.04", "dense.lr=0.08")


def warming(steps):
    return settings_of(*RATES, f"train.lr_warmup={steps}")


@pytest.mark.parametrize("rehearsed", [None, 2])
def test_both_optimizers_get_a_larger_share_in_every_step_until_all_of_it(rehearsed):
    settings = warming(4)
    trainer = trainer_of(settings, rehearsed=rehearsed)
    seen = []
    for samples in batches_of(settings, 6):
        trainer.step(samples)
        seen.append((row_rate(trainer), *dense_rates(trainer)))
    shares = [0.25, 0.5, 0.75, 1, 1, 1]
    assert seen == [(0.04 * share, 0.08 * share) for share in shares]


def test_without_a_warm_up_rates_are_their_own_from_the_start():
    settings = settings_of(*RATES)
    trainer = trainer_of(settings)
    trainer.step(batches_of(settings, 1)[0])
    assert (row_rate(trainer), dense_rates(trainer)) == (0.04, [0.08])


def test_the_first_step_is_as_small_as_its_rate():
    """One step of SGD from the same weights moves rows by the rate times the same gradients."""
    moved = []
    for warmup in (0, 4):
        settings = settings_of(*RATES, f"train.lr_warmup={warmup}", "embeddings.optimizer='sgd'")
        trainer = trainer_of(settings)
        before = trainer.rows.weight_RD.clone()
        trainer.step(batches_of(settings, 1)[0])
        moved.append(before - trainer.rows.weight_RD)
    assert (moved[0] != 0).any()
    # weights are below 1/2, so each run rounds them once, by 2^-27 at most; a quarter is exact
    assert (moved[0] / 4 - moved[1]).abs().max() <= 2**-26


@pytest.mark.parametrize("at", [2, 4, 6])
def test_a_resumed_run_warms_up_as_the_uninterrupted_one(tmp_path, at):
    settings = warming(4)
    batches = batches_of(settings, 7)
    straight, first, second = (trainer_of(settings) for _ in range(3))
    for samples in batches:
        straight.step(samples)
    for samples in batches[:at]:
        first.step(samples)
    load_checkpoint(second, save_checkpoint(first, tmp_path, Position(at), keep=1))
    for samples in batches[at:]:
        second.step(samples)
    assert_equal(state_of(second), state_of(straight))
    assert row_rate(second) == row_rate(straight)


@pytest.mark.parametrize(("warmup", "trial"), [(3, 2), (4, 1), (4, 6), (9, 2)])
def test_steps_that_were_taken_back_leave_rates_as_they_should_be(warmup, trial):
    settings = warming(warmup)
    batches = batches_of(settings, 10)
    straight, reviewed = trainer_of(settings), trainer_of(settings)
    for k, samples in enumerate(batches):
        straight.step(samples)
        reviewed.step(samples)
        assert dense_rates(reviewed) == dense_rates(straight)
        assert row_rate(reviewed) == row_rate(straight)
        if k == 2:
            with Snapshot(reviewed) as snapshot:
                for other in batches[k + 1 : k + 1 + trial]:
                    reviewed.step(other)
                snapshot.go_back()
    assert torch.equal(reviewed.rows.weight_RD, straight.rows.weight_RD)
    assert_equal(state_of(reviewed), state_of(straight))
