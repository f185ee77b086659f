"""How much worse predictions became, from logits before and after: two estimates and what follows from both.

The loss of a sample rises by ``l(z', y) - l(z, y)`` when its logit goes from ``z`` to ``z'``::

    measured   the mean of that over samples and their labels: unbiased, and noisy
    expected   its mean over labels drawn from the model's own p = sigmoid(z): KL(p || p')

The second has a tenth of the noise or less, for rounding errors know nothing of labels, and is right where the
model is calibrated. So it is believed unless the first says for certain that harm is larger::

    estimate = max(expected, measured - 2 standard errors)

What seems to be better than before gets no credit. It happens: an overconfident model gains where rounding shrinks
its rows (Book-Crossing's tables in int2 by -0.3 %). But calibration would give as much, and the next snapshot of
the model need not have it to give.

Everything is a share of the loss before; that of normalized entropy is the same, its denominator cancels.
Shape legend: ``B`` samples.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import softplus

from laconic.train.harm import loss_change, sample_losses

__all__ = ["Harm", "measure_harm"]

_Z = 2.0


@dataclass(frozen=True, slots=True)
class Harm:
    """Increase of normalized entropy, as a share of it."""

    measured: float
    measured_se: float
    expected: float
    expected_se: float
    samples: int

    @property
    def estimate(self) -> float:
        """What the search reckons with."""
        return max(self.expected, self.measured - _Z * self.measured_se)

    def within(self, budget: float) -> bool:
        """Whether it is within a budget by both accounts."""
        return self.measured <= budget and self.estimate <= budget


def measure_harm(exact_B: Tensor, changed_B: Tensor, label_B: Tensor) -> Harm:
    """Compare logits sample by sample; a logit that is NaN or infinite does infinite harm."""
    count = len(label_B)
    if not bool(torch.isfinite(changed_B).all()):
        return Harm(math.inf, 0.0, math.inf, 0.0, count)
    loss = float(sample_losses(exact_B, label_B).mean())
    measured_B = loss_change(exact_B, changed_B, label_B)
    before_B, after_B = exact_B.double(), changed_B.double()
    # softplus is convex, so this is never negative but by rounding
    expected_B = softplus(after_B) - softplus(before_B) - torch.sigmoid(before_B) * (after_B - before_B)
    return Harm(
        *(_share(measured_B, loss)),
        *(_share(expected_B.clamp(min=0.0), loss)),
        count,
    )


def _share(change_B: Tensor, loss: float) -> tuple[float, float]:
    """Mean and its standard error, as shares of the loss."""
    error = float(change_B.std()) / math.sqrt(len(change_B)) if len(change_B) > 1 else math.inf
    return float(change_B.mean()) / loss, error / loss
