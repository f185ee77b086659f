"""What became worse, by two accounts."""

from __future__ import annotations

import math

import pytest
import torch

from laconic.quantize.search.harm import Harm, measure_harm


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


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_logit_that_is_no_number_does_infinite_harm(value):
    logits_B, label_B, _ = calibrated(300)
    changed_B = logits_B.clone()
    changed_B[17] = value
    assert measure_harm(logits_B, changed_B, label_B).estimate == math.inf
