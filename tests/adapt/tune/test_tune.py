"""A rehearsal measures what was planted, says the same twice, and bounds are chosen within the budget."""

from __future__ import annotations

from statistics import fmean

import pytest
import torch

from laconic import Compression
from laconic.adapt import AIM, BUDGET, MOST_GRADIENTS_ERROR, MOST_ROWS_ERROR
from laconic.adapt.tune import MOST_STEPS
from laconic.adapt.tune.choose import choose
from laconic.adapt.tune.measure import FORWARD_BOUNDS, GRADIENT_BOUNDS, Effort, measure, work_of
from laconic.errors import ConfigError
from laconic.exchange.scales import agrees_after
from laconic.train.rehearse import rehearse
from tests.adapt.tune.planted import ROWS, SETTINGS, OneTableMatters
from tests.cases import each

RANKS, STEPS = 2, 64
BATCH = RANKS * SETTINGS.train.batch
HARMLESS = Compression().policy(("matters", "ignored")).plan


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


@each("direction", ["forward", "backward"])
def test_the_table_that_labels_follow_is_the_sensitive_one(measured, direction):
    matters, ignored = (getattr(table, direction) for table in measured.tables)
    assert matters.sensitivity > 2 * ignored.sensitivity > 0


@each("direction", ["forward", "backward"])
def test_the_table_that_labels_ignore_gets_the_looser_bound(measured, direction):
    """Or the same, where the next one would save too little."""
    looser = []
    for budget in (1e-5, 1e-4, 1e-3):
        tables = choose(measured, "run", budget).tables
        matters, ignored = (getattr(table, direction).chosen.bound or 0 for table in tables)
        assert matters <= ignored
        looser.append(matters < ignored)
    assert sum(looser) >= 2


def test_what_a_guard_would_see_at_the_default_bounds_is_what_tune_predicts_there(measured):
    """The tables send about as many rows, so that their bounds are those that are written."""
    run = rehearse(SETTINGS, OneTableMatters(), RANKS)
    losses = run.train(run.take(STEPS), HARMLESS)
    assert measured.loss == pytest.approx(fmean(losses[-(STEPS // 10) :]), rel=1e-12)
    with run.under(HARMLESS):
        cost = run.subject.rounding_cost()
    for t, table in enumerate(measured.tables):
        for curve, cost_T, default in (
            (table.forward, cost.rows_T, Compression().rows),
            (table.backward, cost.gradients_T, Compression().gradients),
        ):
            predicted = curve.harm(curve.bounds.index(default.bound))
            assert predicted == pytest.approx(cost_T[t] / measured.loss, rel=0.1)


@pytest.mark.parametrize("budget", [1e-5, 1e-4, 1e-3, 1e-2])
def test_choices_stay_within_the_budget(measured, budget):
    tuned = choose(measured, "run", budget)
    assert tuned.harm <= AIM * budget
    assert tuned.lower_bound <= tuned.bytes_sent
    for table in tuned.tables:
        for found, most in ((table.forward, MOST_ROWS_ERROR), (table.backward, MOST_GRADIENTS_ERROR)):
            bound = found.chosen.bound
            assert bound is None or found.error[found.bounds.index(bound)] <= most


def test_a_rehearsal_repeats_to_the_last_bit_and_leaves_the_stage_as_training_made_it(measured):
    stage, trained = (rehearse(SETTINGS, OneTableMatters(), RANKS) for _ in range(2))
    assert measure(stage, STEPS) == measured
    trained.train(trained.take(STEPS), HARMLESS)
    for name in stage.names:
        rows, expected = (run.subject.rows.table_shard(name)[1] for run in (stage, trained))
        assert torch.equal(rows, expected), name


def test_a_data_set_too_small_to_measure_on_is_refused_with_its_size():
    needed = Effort().batches
    with pytest.raises(ConfigError) as caught:
        work_of(OneTableMatters(samples=10 * BATCH), SETTINGS.train.batch, RANKS, None)
    assert str(caught.value) == (
        f"tune: an epoch has 10 batches of 32 samples on 2 ranks, and measuring takes {needed} of them; "
        f"expected --steps of 8 to {10 - needed}, got 9"
    )
    with pytest.raises(ConfigError, match=rf"expected --steps of 8 to {128 - needed}, got 128$"):
        work_of(OneTableMatters(), SETTINGS.train.batch, RANKS, 128)


@each(
    ("wanted", "trained"),
    [(8, 8), (9, 8), (64, 64), (127, 64), (255, 128), (511, 256), (700, 512), (1300, 1280), (None, 1024)],
)
def test_training_ends_at_a_step_after_which_ranks_agree(wanted, trained):
    """So measuring has the figures of that moment."""
    steps, pieces = work_of(OneTableMatters(samples=1400 * BATCH), SETTINGS.train.batch, RANKS, wanted)
    assert steps == trained <= (wanted or MOST_STEPS)
    assert agrees_after(steps)
    assert pieces == steps + Effort().count()


def test_the_default_budget_is_that_of_a_guard(measured):
    assert choose(measured, "run").budget == BUDGET


@pytest.mark.parametrize("budget", [0.0, 1.0, -0.1])
def test_a_budget_is_a_share(measured, budget):
    with pytest.raises(
        ConfigError, match=r"^tune: expected a budget between 0 and 1, as 0\.0005 or 0\.05%, got "
    ):
        choose(measured, "run", budget)
