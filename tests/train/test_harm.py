"""What a change of logits does to the loss: the second order of it, without the noise of the first."""

from __future__ import annotations

import math

import pytest
import torch

from laconic.train.harm import curvature_harm, loss_change, sample_losses

LOGITS = torch.linspace(-6, 6, 41, dtype=torch.float64)


def test_no_change_does_no_harm():
    assert curvature_harm(LOGITS, LOGITS).tolist() == [0] * len(LOGITS)
    assert loss_change(LOGITS, LOGITS, torch.ones(41)).tolist() == [0] * len(LOGITS)


def test_harm_is_never_negative_and_the_same_in_both_directions():
    off = torch.randn(41, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    harm = curvature_harm(LOGITS, LOGITS + off)
    assert (harm >= 0).all()
    # the sum with the logit is rounded by 2^-51 at most, its distance from the logit is up to 4
    assert torch.allclose(harm, curvature_harm(LOGITS, LOGITS - off), rtol=1e-13, atol=1e-13)


def test_harm_at_even_odds_is_an_eighth_of_the_square():
    assert curvature_harm(torch.zeros(1), torch.tensor([0.5])).item() == 0.5**2 / 8


@pytest.mark.parametrize("off", [0.1, 0.01])
def test_harm_is_what_labels_of_the_models_own_odds_lose_on_average(off):
    """To the second order; the third derivative of the loss is at most 1/10, so the rest is below off^3 / 60."""
    probability = torch.sigmoid(LOGITS)
    expected = probability * loss_change(LOGITS, LOGITS + off, torch.ones(41)) + (
        1 - probability
    ) * loss_change(LOGITS, LOGITS + off, torch.zeros(41))
    assert (curvature_harm(LOGITS, LOGITS + off) - expected).abs().max() <= off**3 / 60


def test_harm_says_from_few_samples_what_losses_say_from_many():
    """Labels follow the odds, errors know nothing of them: both means estimate the same, one far more precisely."""
    generator = torch.Generator().manual_seed(1)
    logits = torch.randn(20_000, generator=generator, dtype=torch.float64)
    labels = (torch.rand(20_000, generator=generator, dtype=torch.float64) < torch.sigmoid(logits)).double()
    changed = logits + 0.05 * torch.randn(20_000, generator=generator, dtype=torch.float64)
    harm, change = curvature_harm(logits, changed), loss_change(logits, changed, labels)
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
    assert curvature_harm(torch.empty(0), torch.empty(0)).shape == (0,)
