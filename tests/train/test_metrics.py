"""Figures against their definitions, sample by sample."""

from __future__ import annotations

import math
import pickle

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from laconic.errors import ConfigError
from laconic.train.metrics import Evaluation, Predictions, Window, auc, log_loss, normalized_entropy

FEW = st.sampled_from([-math.inf, -2.5, -1.0, -0.0, 0.0, 0.5, 3.0, math.inf])
ANY = st.floats(width=32, allow_nan=False)


def samples(scores, least=0):
    return st.lists(st.tuples(scores, st.booleans()), min_size=least, max_size=40)


def tensors(pairs):
    scores = torch.tensor([score for score, _ in pairs], dtype=torch.float32)
    return scores, torch.tensor([label for _, label in pairs], dtype=torch.uint8)


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
    assert same(auc(*tensors(pairs)), pairs_won(pairs))


@given(samples(st.floats(-80, 80, width=32), least=1))
def test_log_loss_is_the_mean_cross_entropy(pairs):
    expected = math.fsum(
        math.log1p(math.exp(-s)) if label else math.log1p(math.exp(s)) for s, label in pairs
    ) / len(pairs)
    # At most 40 positive terms, each a few roundings of float64; half an ulp of 1 where 1 + exp(s) rounds.
    assert abs(log_loss(*tensors(pairs)) - expected) <= 1e-13 * (1 + expected)


@given(samples(FEW | ANY), st.integers(1, 4), st.randoms(use_true_random=False))
def test_ranks_merge_to_the_same_figures_to_the_last_bit(pairs, ranks, random):
    whole = Predictions()
    whole.add(*tensors(pairs))
    shuffled = random.sample(pairs, len(pairs))
    parts = [Predictions() for _ in range(ranks)]
    for rank, part in enumerate(parts):
        part.add(*tensors(shuffled[rank::ranks]))
    merged = Predictions.merged(pickle.loads(pickle.dumps(part)) for part in parts)
    assert repr(merged.evaluate()) == repr(whole.evaluate())


def test_the_base_rate_has_a_normalised_entropy_of_one():
    labels = torch.tensor([1] + [0] * 3)
    assert math.isclose(normalized_entropy(torch.full((4,), math.log(1 / 3)), labels), 1, rel_tol=1e-7)


def test_an_evaluation_holds_what_the_functions_say():
    scores, labels = torch.tensor([0.3, -1.0, 2.0, 0.3]), torch.tensor([1, 0, 1, 0])
    predictions = Predictions()
    predictions.add(scores[:1], labels[:1])
    predictions.add(scores[1:], labels[1:])
    assert predictions.evaluate() == Evaluation(
        samples=4,
        auc=0.875,
        log_loss=log_loss(scores, labels),
        normalized_entropy=normalized_entropy(scores, labels),
        positives=2,
    )
    assert torch.equal(predictions.scores, scores)
    assert torch.equal(predictions.labels, labels.to(torch.uint8))


@pytest.mark.parametrize("label", [0, 1])
def test_one_class_has_a_loss_but_no_auc(label):
    predictions = Predictions()
    predictions.add(torch.zeros(3), torch.full((3,), label))
    found = predictions.evaluate()
    assert math.isclose(found.log_loss, math.log(2), rel_tol=1e-15)
    assert math.isnan(found.auc)
    assert math.isnan(found.normalized_entropy)


def test_no_samples_have_no_figures():
    found = Predictions().evaluate()
    assert found.samples == 0
    assert math.isnan(found.auc)
    assert math.isnan(found.log_loss)
    assert math.isnan(found.normalized_entropy)


def test_certainty_is_free_when_right_and_infinite_when_wrong():
    sure = torch.tensor([math.inf, -math.inf])
    assert log_loss(sure, torch.tensor([1, 0])) == 0
    assert log_loss(sure, torch.tensor([0, 1])) == math.inf


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int64, torch.float32])
def test_labels_may_have_any_type(dtype):
    assert auc(torch.tensor([0.0, 1.0]), torch.tensor([0, 1]).to(dtype)) == 1


def test_nan_scores_are_an_error_that_says_where():
    scores = torch.tensor([0.0, math.nan, math.nan])
    with pytest.raises(ConfigError) as error:
        auc(scores, torch.tensor([0, 1, 0]))
    assert str(error.value) == (
        "metrics: expected scores that are numbers, got NaN in 2 of 3 samples, first at 1; the model has diverged"
    )


def test_other_labels_are_refused():
    with pytest.raises(ConfigError, match=r"metrics: expected labels 0 and 1, got 0\.5"):
        Predictions().add(torch.zeros(2), torch.tensor([1, 0.5]))


def test_shapes_that_differ_are_refused():
    with pytest.raises(ConfigError, match=r"got shapes \(2,\) and \(3,\)"):
        auc(torch.zeros(2), torch.zeros(3))


def test_predictions_are_copies():
    scores, predictions = torch.tensor([1.0, 0.0], requires_grad=True), Predictions()
    predictions.add(scores, torch.tensor([1, 0]))
    scores.data.zero_()
    assert predictions.scores.tolist() == [1, 0]
    assert not predictions.scores.requires_grad


def test_a_window_forgets_what_is_older():
    window = Window(batches=2)
    window.add(torch.tensor(100.0), torch.tensor([0.0, 1.0]), torch.tensor([1, 0]))
    window.add(torch.tensor(4.0), torch.tensor([0.0]), torch.tensor([0]))
    window.add(torch.tensor(1.0), torch.tensor([1.0, 2.0]), torch.tensor([1, 1]))
    assert window.loss == 2
    assert window.auc == 1


def test_a_window_passes_over_empty_batches():
    window = Window(batches=1)
    window.add(torch.tensor(3.0), torch.tensor([0.0, 0.0]), torch.tensor([0, 1]))
    window.add(torch.tensor(math.nan), torch.empty(0), torch.empty(0))
    assert window.loss == 3
    assert window.auc == 0.5


def test_a_new_window_knows_nothing():
    assert math.isnan(Window().loss)
    assert math.isnan(Window().auc)


def test_a_window_of_a_diverged_run_still_answers():
    window = Window()
    window.add(torch.tensor(math.nan), torch.tensor([math.nan]), torch.tensor([1]))
    assert math.isnan(window.loss)
    assert math.isnan(window.auc)


def test_a_window_needs_a_batch():
    with pytest.raises(ConfigError, match=r"window\.batches: expected a number >= 1, got 0"):
        Window(batches=0)
