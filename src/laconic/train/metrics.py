"""How good predictions are: AUC, log loss and normalized entropy over all ranks.

Scores are logits, labels 0 or 1. Neither the order of samples nor their division over ranks changes
a bit of a figure (``score_histogram``). Shape legend: ``B`` samples.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass

import torch
from torch import Tensor

from laconic.data import Source
from laconic.errors import ConfigError
from laconic.train.score_histogram import ScoreHistogram
from laconic.train.trainer import Trainer

__all__ = ["Evaluation", "Window", "evaluate"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Evaluation:
    """Figures of one set of samples; NaN for what it does not define."""

    samples: int

    auc: float
    """Probability that a positive outscores a negative, a tie counted half; NaN without both."""

    auc_error: float = 0.0
    """Most by which ``auc`` is off; 0 where it is exact, up to a million distinct scores."""

    log_loss: float
    """Mean over samples, natural logarithm; NaN without samples."""

    normalized_entropy: float
    """Log loss over that of always predicting the base rate; NaN with one class only."""

    positives: int | None = None
    """Samples of label 1; None where nobody counted them."""

    @classmethod
    def of(cls, samples: ScoreHistogram) -> Evaluation:
        """Return all figures of these samples."""
        return cls(
            samples=samples.samples,
            auc=samples.auc(),
            auc_error=samples.auc_error(),
            log_loss=samples.log_loss(),
            normalized_entropy=samples.normalized_entropy(),
            positives=samples.positives,
        )

    @property
    def one_class(self) -> str | None:
        """Say which label all samples have, where they have only one and AUC is undefined."""
        if self.positives is None or not self.samples or 0 < self.positives < self.samples:
            return None
        return f"all {self.samples:,} labels are {1 if self.positives else 0}"


def evaluate(trainer: Trainer, source: Source, *, batch: int) -> Evaluation:
    """Score the evaluation samples with exact rows; every rank gets the same figures."""
    ranks = trainer.ranks
    trainer.rows.synchronize()  # ranks whose copies differ would not evaluate one model
    mine = ScoreHistogram()
    parts = source.batches("eval", global_batch=batch * ranks.count, rank=ranks.rank, ranks=ranks.count)
    for samples in parts:
        mine.add(trainer.predict(samples), samples.label_B)
    merged = ranks.merge(mine, lambda one, other: ScoreHistogram.merged([one, other]))
    found: Evaluation = ranks.gather(None if merged is None else Evaluation.of(merged))[0]
    return found


class Window:
    """Loss and AUC of the last batches of training, for a progress bar.

    Adding copies one batch; only reading ``auc`` sorts, so read it when the bar is redrawn.
    """

    def __init__(self, batches: int = 50) -> None:
        if batches < 1:
            raise ConfigError(f"window.batches: expected a number >= 1, got {batches!r}")
        self._batches: deque[tuple[Tensor, Tensor, Tensor]] = deque(maxlen=batches)

    def add(self, loss: Tensor, scores_B: Tensor, labels_B: Tensor) -> None:
        """Take a batch and its mean loss; an empty batch has no loss and is not kept."""
        if scores_B.numel():
            self._batches.append((loss.detach().clone(), scores_B.detach().clone(), labels_B.clone()))

    @property
    def loss(self) -> float:
        """Mean over samples; NaN before the first batch."""
        total = sum(float(loss) * scores_B.numel() for loss, scores_B, _ in self._batches)
        samples = sum(scores_B.numel() for _, scores_B, _ in self._batches)
        return total / samples if samples else math.nan

    @property
    def auc(self) -> float:
        """AUC of the window's samples; NaN if a score is, so that a diverged run can be shown."""
        if not self._batches:
            return math.nan
        _, scores, labels = zip(*self._batches, strict=True)
        scores_B = torch.cat(scores)
        if bool(scores_B.isnan().any()):
            return math.nan
        samples = ScoreHistogram(max(len(scores_B), 2))
        samples.add(scores_B, torch.cat(labels))
        return samples.auc()
