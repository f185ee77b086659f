"""Harm of gradients: exact ones do none, noise does more the more there is, and one odd fork is outvoted."""

from __future__ import annotations

import numpy as np
import pytest

from laconic.adapt.tune.gradient_harm import Progress, _median, _shares, gradient_harm
from laconic.codecs import BoundedRows
from laconic.exchange.exchange_plan import ExchangePlan, TableCodecs
from laconic.train.rehearse import rehearse
from tests.adapt.tune.planted import SETTINGS, OneTableMatters

TRAINED, FORKS, STEPS = 64, 3, 8


def rounded(bound):
    return TableCodecs(backward=BoundedRows(bound, relative_to="rms", rounding="unbiased"))


@pytest.fixture(scope="module")
def stage():
    stage = rehearse(SETTINGS, OneTableMatters(), ranks=2)
    stage.train(stage.take(TRAINED), stage.exact)
    return stage


@pytest.fixture(scope="module")
def batches(stage):
    return [stage.take(STEPS) for _ in range(FORKS)], stage.take(8)


def harms(stage, batches, plans):
    forks, scored = batches
    together = ExchangePlan((rounded(2.0),) * 2)
    return gradient_harm(stage, forks, scored, plans, together, Progress(TRAINED, slope=0.02))


def test_exact_gradients_harm_less_than_any_others(stage, batches):
    plans = [stage.exact, ExchangePlan((rounded(0.06), TableCodecs()))]
    (exact, doubt), (fine, _) = harms(stage, batches, plans)
    assert 0 <= exact < fine
    assert doubt == 0


def test_coarser_gradients_harm_more(stage, batches):
    plans = [ExchangePlan((rounded(bound), TableCodecs())) for bound in (0.25, 1.0, 4.0)]
    found = [harm for harm, _ in harms(stage, batches, plans)]
    assert 0 < found[0] < found[1] < found[2]


def test_noise_in_the_table_that_labels_follow_harms_more(stage, batches):
    plans = [ExchangePlan((rounded(2.0), TableCodecs())), ExchangePlan((TableCodecs(), rounded(2.0)))]
    matters, ignored = harms(stage, batches, plans)
    assert matters[0] - matters[1] > ignored[0] + ignored[1]


def test_the_stage_is_left_as_it_was_and_every_piece_is_reported(stage, batches, monkeypatch):
    _, scored = batches
    before_B = stage.logits(scored, stage.exact)
    pieces = []
    monkeypatch.setattr(stage, "done", lambda: pieces.append(None))
    harms(stage, batches, [stage.exact, stage.exact])
    assert len(pieces) == FORKS * 3
    assert stage.logits(scored, stage.exact).equal(before_B)


def test_one_odd_fork_is_outvoted():
    median_P, error_P = _median(np.array([[1.0, 3.0], [1.2, 3.0], [50.0, 3.0]]))
    assert median_P.tolist() == [1.2, 3.0]
    assert error_P == pytest.approx([1.858 * 0.2 / 3**0.5, 0.0], rel=1e-9)


def test_what_all_lose_beyond_the_sum_is_laid_to_all():
    lost_FP = np.array([[6.0, 1.0, 2.0], [4.0, 1.0, -1.0]])
    share_P, error_P = _shares(lost_FP, np.full((2, 3), 3.0), learnt=10.0)
    assert share_P == pytest.approx([0.2 + 0.35, 0.1 + 0.35], rel=1e-12)
    assert error_P == pytest.approx([18**0.5 / 10] * 2, rel=1e-12)


def test_nothing_learnt_is_nothing_lost():
    share_P, error_P = _shares(np.ones((3, 2)), np.ones((3, 2)), learnt=-0.1)
    assert (share_P.tolist(), error_P.tolist()) == ([0.0], [0.0])
