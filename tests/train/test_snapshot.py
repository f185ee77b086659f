"""A snapshot brings a trainer back, all of it, to the last bit, as often as one likes."""

from __future__ import annotations

import pytest
import torch

from laconic.adapt.policy import FixedPolicy
from laconic.errors import PlanError
from laconic.exchange.exchange_plan import ExchangePlan
from laconic.train.trainer import Snapshot
from tests.train.small_runs import batches_of, settings_of, state_of, trainer_of
from tests.train.test_checkpoint import assert_equal

KINDS = {
    "adagrad": (),
    "sgd": ("embeddings.optimizer='sgd'", "dense.optimizer='sgd'"),
    "adam": ("dense.optimizer='adam'",),
}


@pytest.fixture(params=[None, 3], ids=["alone", "rehearsed 3"])
def rehearsed(request):
    return request.param


@pytest.fixture(params=KINDS)
def settings(request):
    return settings_of(*KINDS[request.param])


def differs(first, second):
    return any(not torch.equal(first["rows"][name], second["rows"][name]) for name in first["rows"])


@pytest.mark.parametrize("trained", [0, 3])
def test_going_back_restores_everything_any_number_of_times(settings, rehearsed, trained):
    batches = batches_of(settings, 10)
    trainer = trainer_of(settings, rehearsed=rehearsed)
    for samples in batches[:trained]:
        trainer.step(samples)
    before = state_of(trainer)
    with Snapshot(trainer) as snapshot:
        for count in (1, 3, 2):
            for samples in batches[trained : trained + count]:
                trainer.step(samples)
            after = state_of(trainer)
            assert after["step"] == trained + count
            assert differs(before, after)
            snapshot.go_back()
            assert_equal(state_of(trainer), before)
    assert_equal(state_of(trainer), before)


def test_what_follows_is_as_if_nothing_had_been_tried(settings, rehearsed):
    batches = batches_of(settings, 5)
    straight, tried = (trainer_of(settings, rehearsed=rehearsed) for _ in range(2))
    for k, samples in enumerate(batches):
        with Snapshot(tried) as snapshot:
            for other in batches[::-2]:
                tried.step(other)
            snapshot.go_back()
        losses = [trainer.step(samples)[0].item() for trainer in (straight, tried)]
        assert losses[0] == losses[1], k
    assert_equal(state_of(tried), state_of(straight))


def test_leaving_keeps_what_is_then(rehearsed):
    settings = settings_of()
    batches = batches_of(settings, 6)
    straight, kept = (trainer_of(settings, rehearsed=rehearsed) for _ in range(2))
    with Snapshot(kept) as snapshot:
        kept.step(batches[5])
        snapshot.go_back()
        for samples in batches[:2]:
            kept.step(samples)
    for samples in batches[2:4]:
        kept.step(samples)
    for samples in batches[:4]:
        straight.step(samples)
    assert_equal(state_of(kept), state_of(straight))


def test_a_snapshot_ends_with_an_error_inside():
    settings = settings_of()
    trainer = trainer_of(settings)
    with pytest.raises(ZeroDivisionError), Snapshot(trainer):
        raise ZeroDivisionError
    assert trainer.rows._shards._journal is None


def test_a_trial_under_another_policy_that_fails_ends():
    trainer = trainer_of(settings_of())
    before = trainer.rows.policy, trainer.rows.ledger
    with (
        pytest.raises(ZeroDivisionError),
        trainer.under(FixedPolicy(ExchangePlan.exact(4)), trainer.new_ledger()),
    ):
        raise ZeroDivisionError
    assert (trainer.rows.policy, trainer.rows.ledger) == before


def test_a_snapshot_is_not_taken_while_a_batch_is_on_its_way():
    settings = settings_of()
    trainer = trainer_of(settings)
    one, two, three = batches_of(settings, 3)
    trainer.step(one, two.lookups)
    message = r"^embeddings: a batch was prefetched; start it, or discard_prefetched\(\), first$"
    with pytest.raises(PlanError, match=message), Snapshot(trainer):
        pass
    trainer.step(two)
    with Snapshot(trainer) as snapshot:
        before = state_of(trainer)
        trainer.step(three)
        snapshot.go_back()
    assert_equal(state_of(trainer), before)
