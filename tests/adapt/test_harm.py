"""What a change of logits does to the loss: by what happened, by what was to be expected, and to the second order."""

from __future__ import annotations

import math

import pytest
import torch

from laconic.adapt.harm import Harm, expected_change, loss_change, measure_harm, sample_losses
from tests.cases import each

LOGITS = torch.linspace(-6, 6, 41, dtype=torch.float64)


def test_no_change_does_no_harm():
    assert expected_change(LOGITS, LOGITS).tolist() == [0] * len(LOGITS)
    assert loss_change(LOGITS, LOGITS, torch.ones(41)).tolist() == [0] * len(LOGITS)


def test_harm_is_never_negative():
    off = torch.randn(41, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    assert (expected_change(LOGITS, LOGITS + off) > 0).all()


@each("off", [0.1, 0.01])
def test_harm_is_what_labels_of_the_models_own_odds_lose_on_average(off):
    """Both are sums of a few terms of at most 7, each rounded by 2^-53 of itself."""
    probability = torch.sigmoid(LOGITS)
    expected = probability * loss_change(LOGITS, LOGITS + off, torch.ones(41)) + (
        1 - probability
    ) * loss_change(LOGITS, LOGITS + off, torch.zeros(41))
    assert (expected_change(LOGITS, LOGITS + off) - expected).abs().max() <= 7 * 2**-50


def test_harm_says_from_few_samples_what_losses_say_from_many():
    """Labels follow the odds, errors know nothing of them: both means estimate the same, one far more precisely."""
    generator = torch.Generator().manual_seed(1)
    logits = torch.randn(20_000, generator=generator, dtype=torch.float64)
    labels = (torch.rand(20_000, generator=generator, dtype=torch.float64) < torch.sigmoid(logits)).double()
    changed = logits + 0.05 * torch.randn(20_000, generator=generator, dtype=torch.float64)
    harm, change = expected_change(logits, changed), loss_change(logits, changed, labels)
    error = change.std() / math.sqrt(len(change))
    assert (harm.mean() - change.mean()).abs() < 4 * error
    assert harm.std() < change.std() / 20


def test_losses_are_those_of_the_labels_in_float64():
    losses = sample_losses(torch.tensor([0.0, 100.0, -100.0]), torch.tensor([1, 1, 1]))
    assert losses.dtype == torch.float64
    assert losses[0].item() == pytest.approx(math.log(2), rel=1e-15)
    assert 0 < losses[1].item() < 1e-43
    assert losses[2].item() == pytest.approx(100, rel=1e-15)


def test_no_samples_have_no_harm():
    assert expected_change(torch.empty(0), torch.empty(0)).shape == (0,)


def calibrated(samples, seed=0):
    random = torch.Generator().manual_seed(seed)
    logits_B = 1.5 * torch.randn(samples, generator=random)
    return logits_B, torch.bernoulli(torch.sigmoid(logits_B), generator=random), random


def test_the_same_logits_do_no_harm():
    logits_B, label_B, _ = calibrated(1000)
    harm = measure_harm(logits_B, logits_B, label_B)
    assert harm == Harm(0.0, 0.0, 0.0, 0.0, 1000)
    assert harm.within(0.0)


def test_both_accounts_agree_where_the_model_is_calibrated_and_one_is_more_precise():
    logits_B, label_B, random = calibrated(200_000)
    harm = measure_harm(logits_B, logits_B + 0.05 * torch.randn(200_000, generator=random), label_B)
    assert abs(harm.measured - harm.expected) < 4 * harm.measured_se
    assert harm.expected_se < harm.measured_se / 10
    assert harm.estimate == harm.expected


def test_an_error_that_follows_the_labels_is_seen_by_what_was_measured():
    logits_B, label_B, _ = calibrated(50_000)
    worse = measure_harm(logits_B, logits_B - 0.05 * (2 * label_B - 1), label_B)
    assert worse.estimate == worse.measured - 2 * worse.measured_se > 3 * worse.expected
    better = measure_harm(logits_B, logits_B + 0.05 * (2 * label_B - 1), label_B)
    assert better.measured + 10 * better.measured_se < 0 < better.expected == better.estimate


def test_it_is_within_a_budget_only_by_both_accounts():
    assert Harm(0.5, 0.1, 0.4, 0, 9).within(0.5)
    assert not Harm(0.51, 0.1, 0.4, 0, 9).within(0.5)
    assert not Harm(0.45, 0.1, 0.6, 0, 9).within(0.5)


@each("value", [math.nan, math.inf, -math.inf])
def test_a_logit_that_is_no_number_does_infinite_harm(value):
    logits_B, label_B, _ = calibrated(300)
    changed_B = logits_B.clone()
    changed_B[17] = value
    assert measure_harm(logits_B, changed_B, label_B).estimate == math.inf
