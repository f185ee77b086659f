"""What every measure of predictions requires of scores and labels."""

from __future__ import annotations

from torch import Tensor

from laconic.errors import ConfigError

__all__ = ["checked_scores"]


def checked_scores(scores_B: Tensor, labels_B: Tensor) -> tuple[Tensor, Tensor]:
    """Return scores without their gradients, and labels; raises unless they can be evaluated.

    Scores are numbers or infinite, one for each label; labels are 0 or 1, of any type.
    """
    if scores_B.dim() != 1 or scores_B.shape != labels_B.shape:
        raise ConfigError(
            f"metrics: expected one score and one label for each sample, "
            f"got shapes {tuple(scores_B.shape)} and {tuple(labels_B.shape)}"
        )
    scores_B = scores_B.detach()
    if missing := int(scores_B.isnan().sum()):
        first = int(scores_B.isnan().nonzero()[0])
        raise ConfigError(
            f"metrics: expected scores that are numbers, got NaN in {missing} of {len(scores_B)} samples, "
            f"first at {first}; the model has diverged"
        )
    wrong = labels_B[(labels_B != 0) & (labels_B != 1)]
    if len(wrong):
        raise ConfigError(f"metrics: expected labels 0 and 1, got {wrong[0].item()!r}")
    return scores_B, labels_B
