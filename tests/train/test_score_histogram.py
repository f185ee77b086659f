"""Figures against their definitions, sample by sample; where scores share bins, within the error."""

from __future__ import annotations

import math
import pickle

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from laconic.errors import ConfigError
from laconic.train.metrics import Evaluation
from laconic.train.score_histogram import ScoreHistogram

FEW = st.sampled_from([-math.inf, -2.5, -1.0, -0.0, 0.0, 0.5, 3.0, math.inf])
ANY = st.floats(width=32, allow_nan=False)


def samples(scores, least=0):
    return st.lists(st.tuples(scores, st.booleans()), min_size=least, max_size=40)


def tensors(pairs):
    scores = torch.tensor([score for score, _ in pairs], dtype=torch.float32)
    return scores, torch.tensor([label for _, label in pairs], dtype=torch.uint8)


def filled(scores, labels, most_bins=1024, batch=7):
    histogram = ScoreHistogram(most_bins)
    for some, of_some in zip(scores.split(batch), labels.split(batch), strict=True):
        histogram.add(some, of_some)
    return histogram


def pairs_won(pairs):
    positives = [score for score, label in pairs if label]
    negatives = [score for score, label in pairs if not label]
    if not positives or not negatives:
        return math.nan
    twice = sum(2 * (p > n) + (p == n) for p in positives for n in negatives)
    return twice / (2 * len(positives) * len(negatives))


def same(a, b):
    return a == b or (math.isnan(a) and math.isnan(b))


@given(samples(FEW) | samples(ANY))
def test_auc_counts_pairs_and_half_of_ties(pairs):
    histogram = filled(*tensors(pairs))
    assert same(histogram.auc(), pairs_won(pairs))
    assert histogram.auc_error() == 0.0


@given(samples(FEW) | samples(ANY), st.integers(2, 12))
def test_few_bins_stay_within_the_error_that_they_state(pairs, most_bins):
    histogram = filled(*tensors(pairs), most_bins)
    exact = pairs_won(pairs)
    assert same(histogram.auc(), exact) or abs(histogram.auc() - exact) <= histogram.auc_error()


def test_the_error_is_small_where_there_are_many_bins():
    scores = torch.randn(200_000, generator=torch.Generator().manual_seed(0))
    labels = torch.rand(200_000, generator=torch.Generator().manual_seed(1)) < torch.sigmoid(scores)
    exact, binned = (filled(scores, labels, most_bins, 1 << 14) for most_bins in (1 << 18, 1 << 12))
    assert exact.shift == 0 < binned.shift
    assert abs(binned.auc() - exact.auc()) <= binned.auc_error() < 1e-3
    assert binned.log_loss() == exact.log_loss()


@given(samples(st.floats(-80, 80, width=32), least=1))
def test_log_loss_is_the_mean_cross_entropy(pairs):
    expected = math.fsum(
        math.log1p(math.exp(-s)) if label else math.log1p(math.exp(s)) for s, label in pairs
    ) / len(pairs)
    # at most 40 positive terms, each a few roundings of float64; half an ulp where 1 + exp(s) rounds
    assert abs(filled(*tensors(pairs)).log_loss() - expected) <= 1e-13 * (1 + expected)


@given(samples(FEW | ANY), st.integers(1, 4), st.sampled_from([4, 1024]), st.randoms(use_true_random=False))
def test_ranks_merge_to_the_same_figures_to_the_last_bit(pairs, ranks, most_bins, random):
    whole = Evaluation.of(filled(*tensors(pairs), most_bins))
    shuffled = random.sample(pairs, len(pairs))
    parts = [filled(*tensors(shuffled[rank::ranks]), most_bins) for rank in range(ranks)]
    merged = ScoreHistogram.merged(pickle.loads(pickle.dumps(part)) for part in parts)
    assert repr(Evaluation.of(merged)) == repr(whole)


def test_what_travels_does_not_grow_with_samples():
    scores = torch.randn(50_000, generator=torch.Generator().manual_seed(0))
    histogram = filled(scores, scores > 0, 256, 1000)
    assert len(pickle.dumps(histogram)) < 20 * 256 + 1000


def test_the_base_rate_has_a_normalised_entropy_of_one():
    labels = torch.tensor([1] + [0] * 3)
    histogram = filled(torch.full((4,), math.log(1 / 3)), labels)
    assert math.isclose(histogram.normalized_entropy(), 1, rel_tol=1e-7)


def test_an_evaluation_holds_all_figures():
    scores, labels = torch.tensor([0.3, -1.0, 2.0, 0.3]), torch.tensor([1, 0, 1, 0])
    histogram = filled(scores, labels, batch=1)
    assert Evaluation.of(histogram) == Evaluation(
        samples=4,
        auc=0.875,
        log_loss=histogram.log_loss(),
        normalized_entropy=histogram.normalized_entropy(),
        positives=2,
    )


@pytest.mark.parametrize("label", [0, 1])
def test_one_class_has_a_loss_but_no_auc(label):
    histogram = filled(torch.zeros(3), torch.full((3,), label))
    assert math.isclose(histogram.log_loss(), math.log(2), rel_tol=1e-15)
    assert math.isnan(histogram.auc())
    assert math.isnan(histogram.normalized_entropy())


def test_no_samples_have_no_figures():
    found = Evaluation.of(ScoreHistogram())
    assert found.samples == 0
    assert math.isnan(found.auc)
    assert math.isnan(found.log_loss)
    assert math.isnan(found.normalized_entropy)


def test_certainty_is_free_when_right_and_infinite_when_wrong():
    sure = torch.tensor([math.inf, -math.inf])
    assert filled(sure, torch.tensor([1, 0])).log_loss() == 0
    assert filled(sure, torch.tensor([0, 1])).log_loss() == math.inf


def test_losses_of_wild_scores_are_added_too():
    wild = filled(torch.tensor([-3e38, 5e6]), torch.tensor([1, 0]))
    assert wild.log_loss() == pytest.approx((float(torch.tensor(3e38)) + 5e6) / 2)


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int64, torch.float32])
def test_labels_may_have_any_type(dtype):
    assert filled(torch.tensor([0.0, 1.0]), torch.tensor([0, 1]).to(dtype)).auc() == 1


def test_nan_scores_are_an_error_that_says_where():
    with pytest.raises(ConfigError) as error:
        filled(torch.tensor([0.0, math.nan, math.nan]), torch.tensor([0, 1, 0]))
    assert str(error.value) == (
        "metrics: expected scores that are numbers, got NaN in 2 of 3 samples, first at 1; the model has diverged"
    )


def test_other_labels_are_refused():
    with pytest.raises(ConfigError, match=r"metrics: expected labels 0 and 1, got 0\.5"):
        ScoreHistogram().add(torch.zeros(2), torch.tensor([1, 0.5]))


def test_shapes_that_differ_are_refused():
    with pytest.raises(ConfigError, match=r"got shapes \(2,\) and \(3,\)"):
        ScoreHistogram().add(torch.zeros(2), torch.zeros(3))


def test_a_histogram_needs_a_bin_for_each_sign():
    with pytest.raises(ConfigError, match=r"most_bins: expected a number >= 2, got 1"):
        ScoreHistogram(1)
