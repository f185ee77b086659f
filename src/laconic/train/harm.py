"""How much worse predictions became, from the change of logits: a precise answer from few samples.

The loss of a sample changes by ``(p - y) d + p (1 - p) d^2 / 2`` when its logit changes by ``d``. Rounding
errors know nothing of the labels, so the first part averages out, and it is all of the noise: on 8,192 samples
of Book-Crossing it drowned an increase of 0.01 % in a standard error of 0.02 %, where the second part alone has
one of 0.0002 %. An error that does follow the labels shows in the loss itself, which is compared besides.

Shape legend: ``B`` samples.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

__all__ = ["curvature_harm", "loss_change", "sample_losses"]


def curvature_harm(exact_B: Tensor, changed_B: Tensor) -> Tensor:
    """Return the expected increase of every sample's loss when its logit changed for no reason."""
    exact_B = exact_B.double()
    probability_B = torch.sigmoid(exact_B)
    return 0.5 * probability_B * (1 - probability_B) * (changed_B.double() - exact_B) ** 2


def sample_losses(logits_B: Tensor, label_B: Tensor) -> Tensor:
    """Log loss of every sample."""
    return binary_cross_entropy_with_logits(logits_B.double(), label_B.double(), reduction="none")


def loss_change(exact_B: Tensor, changed_B: Tensor, label_B: Tensor) -> Tensor:
    """Increase of every sample's loss, as it happened."""
    return sample_losses(changed_B, label_B) - sample_losses(exact_B, label_B)
