"""A rehearsal measures what was planted, says the same twice, and bounds are chosen within the budget."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from laconic.adapt.tune.choose import MOST_ERROR, choose, default_budget
from laconic.adapt.tune.measure import FORWARD_BOUNDS, GRADIENT_BOUNDS, Effort, measure, work_of
from laconic.errors import ConfigError
from laconic.train.rehearse import rehearse
from tests.adapt.tune.planted import ROWS, SETTINGS, OneTableMatters

RANKS, STEPS = 2, 64


@pytest.fixture(scope="module")
def counted():
    pieces = []
    measured = measure(rehearse(SETTINGS, OneTableMatters(), RANKS, done=lambda: pieces.append(None)), STEPS)
    return measured, len(pieces)


@pytest.fixture(scope="module")
def measured(counted):
    return counted[0]


def test_every_table_has_a_curve_for_each_direction(measured):
    assert [(table.name, table.rows) for table in measured.tables] == [("matters", ROWS), ("ignored", ROWS)]
    assert (measured.ranks, measured.steps) == (RANKS, STEPS)
    for table in measured.tables:
        assert table.forward.bounds == FORWARD_BOUNDS
        assert table.backward.bounds == GRADIENT_BOUNDS
        assert len(table.homogenization) == len(FORWARD_BOUNDS)
        assert table.forward.bytes_exact == table.backward.bytes_exact > 0


def test_as_many_pieces_of_work_are_done_as_were_announced(counted):
    _, pieces = counted
    assert work_of(OneTableMatters(), SETTINGS.train.batch, RANKS, STEPS) == (STEPS, pieces)


def test_wide_bounds_send_less_and_err_more(measured):
    for table in measured.tables:
        for curve in (table.forward, table.backward):
            assert list(curve.error) == sorted(curve.error)
            assert curve.bytes_sent[-1] < curve.bytes_sent[0] < curve.bytes_exact
        assert list(table.homogenization) == sorted(table.homogenization, reverse=True)


def test_rows_of_the_table_that_labels_follow_are_the_sensitive_ones(measured):
    matters, ignored = (table.forward for table in measured.tables)
    doubt = (matters.sensitivity_se**2 + ignored.sensitivity_se**2) ** 0.5
    assert matters.sensitivity - ignored.sensitivity > 3 * doubt


def test_the_table_that_labels_ignore_gets_the_looser_bound(measured):
    matters, ignored = (table.forward.chosen for table in choose(measured, "run", 0.0002).tables)
    assert matters.bound is None or matters.bound < ignored.bound


@pytest.mark.parametrize("budget", [1e-5, 1e-4, 1e-3, 1e-2])
def test_choices_stay_within_the_budget(measured, budget):
    tuned = choose(measured, "run", budget)
    assert tuned.harm <= budget
    assert tuned.lower_bound <= tuned.bytes_sent
    for table in tuned.tables:
        bound = table.forward.chosen.bound
        if bound is not None:
            assert table.forward.error[FORWARD_BOUNDS.index(bound)] <= MOST_ERROR["forward"]


def test_a_rehearsal_repeats_to_the_last_bit_and_leaves_the_stage_as_training_made_it(measured):
    stage, trained = (rehearse(SETTINGS, OneTableMatters(), RANKS) for _ in range(2))
    assert measure(stage, STEPS) == measured
    trained.train(trained.take(STEPS), trained.exact)
    for name in stage.names:
        rows, expected = (run.subject.rows.table_shard(name)[1] for run in (stage, trained))
        assert torch.equal(rows, expected), name


def test_a_data_set_too_small_to_measure_on_is_refused_with_its_size():
    needed = Effort().batches
    with pytest.raises(ConfigError) as caught:
        work_of(OneTableMatters(samples=64 * 20), SETTINGS.train.batch, RANKS, None)
    assert str(caught.value) == (
        f"tune: an epoch has 20 batches of 32 samples on 2 ranks, and measuring takes {needed} of them; "
        "expected --steps of 8 to 0, got 18"
    )
    with pytest.raises(ConfigError, match=rf"expected --steps of 8 to {128 - needed}, got 128$"):
        work_of(OneTableMatters(), SETTINGS.train.batch, RANKS, 128)


def test_the_default_budget_is_a_share_of_what_was_learnt(measured):
    entropy = math.log(2)
    known = replace(measured, entropy=entropy, loss=0.8 * entropy)
    assert default_budget(known) == pytest.approx(0.0025 * 0.2 / 0.8, rel=1e-12)
    assert default_budget(known, 0.01) == pytest.approx(0.01 * 0.2 / 0.8, rel=1e-12)
    assert choose(known, "run").budget == default_budget(known)
    nothing = replace(measured, entropy=entropy, loss=1.1 * entropy)
    assert default_budget(nothing) == 1e-5


def test_the_entropy_of_labels_is_more_than_the_loss(measured):
    assert 0.5 < measured.entropy <= math.log(2)
    assert measured.loss < measured.entropy


@pytest.mark.parametrize("budget", [0.0, 1.0, -0.1])
def test_a_budget_is_a_share(measured, budget):
    with pytest.raises(
        ConfigError, match=r"^tune: expected a budget between 0 and 1, as 0\.0005 or 0\.05%, got "
    ):
        choose(measured, "run", budget)
