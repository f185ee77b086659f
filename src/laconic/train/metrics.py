"""How good predictions are: AUC, log loss and normalized entropy, exact, over all ranks.

Scores are logits, labels 0 or 1. Every figure is a function of one thing: how often each distinct
score came with either label. So neither the order of samples nor their division over ranks
changes a bit of it.

Shape legend: ``B`` samples, ``U`` distinct scores in ascending order.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from laconic.data import Source
from laconic.errors import ConfigError
from laconic.train.trainer import Trainer

__all__ = ["Evaluation", "Predictions", "Window", "auc", "evaluate", "log_loss", "normalized_entropy"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Evaluation:
    """Figures of one set of samples; NaN for what it does not define."""

    samples: int

    auc: float
    """Probability that a positive outscores a negative, a tie counted half; NaN without both."""

    log_loss: float
    """Mean over samples, natural logarithm; NaN without samples."""

    normalized_entropy: float
    """Log loss over that of always predicting the base rate; NaN with one class only."""

    positives: int | None = None
    """Samples of label 1; None where nobody counted them."""

    @property
    def one_class(self) -> str | None:
        """Say which label all samples have, where they have only one and AUC is undefined."""
        if self.positives is None or not self.samples or 0 < self.positives < self.samples:
            return None
        return f"all {self.samples:,} labels are {1 if self.positives else 0}"


def auc(scores_B: Tensor, labels_B: Tensor) -> float:
    """Exact area under the ROC curve; NaN unless both classes occur."""
    return _Tally.of(scores_B, labels_B).auc()


def log_loss(scores_B: Tensor, labels_B: Tensor) -> float:
    """Mean cross entropy of logits in float64; NaN without samples."""
    return _Tally.of(scores_B, labels_B).log_loss()


def normalized_entropy(scores_B: Tensor, labels_B: Tensor) -> float:
    """Log loss / entropy of the labels' base rate; below 1 is better than knowing the rate."""
    return _Tally.of(scores_B, labels_B).normalized_entropy()


@dataclass(slots=True)
class Predictions:
    """Scores and labels of an evaluation, batch by batch; 5 bytes a sample, on the CPU.

    Ranks collect their own, one gathers and evaluates: ``Predictions.merged(parts).evaluate()``.
    """

    _scores: list[Tensor] = field(default_factory=list)
    _labels: list[Tensor] = field(default_factory=list)

    def add(self, scores_B: Tensor, labels_B: Tensor) -> None:
        """Take a batch, possibly empty; float64 scores are rounded to float32."""
        scores_B, labels_B = _checked(scores_B, labels_B)
        self._scores.append(scores_B.to("cpu", torch.float32, copy=True))
        self._labels.append(labels_B.to("cpu", torch.uint8, copy=True))

    @classmethod
    def merged(cls, parts: Iterable[Predictions]) -> Predictions:
        """All samples of all parts."""
        parts = list(parts)
        return cls([s for part in parts for s in part._scores], [x for part in parts for x in part._labels])

    @property
    def scores(self) -> Tensor:
        """float32, in the order they came."""
        return torch.cat([torch.empty(0), *self._scores])

    @property
    def labels(self) -> Tensor:
        """uint8, in the order they came."""
        return torch.cat([torch.empty(0, dtype=torch.uint8), *self._labels])

    def evaluate(self) -> Evaluation:
        """All figures from one sort."""
        tally = _Tally.of(self.scores, self.labels)
        return Evaluation(
            samples=tally.samples,
            auc=tally.auc(),
            log_loss=tally.log_loss(),
            normalized_entropy=tally.normalized_entropy(),
            positives=tally.positives,
        )


def evaluate(trainer: Trainer, source: Source, *, batch: int) -> Evaluation:
    """Score the evaluation samples with exact rows; every rank gets the same figures."""
    ranks = trainer.ranks
    trainer.rows.synchronize()  # ranks whose copies differ would not evaluate one model
    predictions = Predictions()
    parts = source.batches("eval", global_batch=batch * ranks.count, rank=ranks.rank, ranks=ranks.count)
    for samples in parts:
        predictions.add(trainer.predict(samples), samples.label_B)
    merged = Predictions.merged(ranks.gather(predictions))
    return merged.evaluate()


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
        return math.nan if bool(scores_B.isnan().any()) else auc(scores_B, torch.cat(labels))


@dataclass(frozen=True, slots=True)
class _Tally:
    """How often each distinct score came with each label."""

    scores_U: Tensor
    positives_U: Tensor
    negatives_U: Tensor

    @classmethod
    def of(cls, scores_B: Tensor, labels_B: Tensor) -> _Tally:
        scores_B, labels_B = _checked(scores_B, labels_B)
        scores_B, order_B = scores_B.to(torch.float32).sort()
        scores_U, counts_U = torch.unique_consecutive(scores_B, return_counts=True)
        ends_U = counts_U.cumsum(0)
        below_B = torch.nn.functional.pad(labels_B[order_B].long().cumsum(0), (1, 0))
        positives_U = below_B[ends_U] - below_B[ends_U - counts_U]
        return cls(scores_U, positives_U, counts_U - positives_U)

    @property
    def positives(self) -> int:
        return int(self.positives_U.sum())

    @property
    def samples(self) -> int:
        return self.positives + int(self.negatives_U.sum())

    def auc(self) -> float:
        """Count pairs won, twice, in integers: exact below 4e18 pairs."""
        pairs = self.positives * (self.samples - self.positives)
        if not pairs:
            return math.nan
        below_U = self.negatives_U.cumsum(0) - self.negatives_U
        won_twice = int((self.positives_U * (2 * below_U + self.negatives_U)).sum())
        return won_twice / (2 * pairs)

    def log_loss(self) -> float:
        if not self.samples:
            return math.nan
        scores_U, zero = self.scores_U.double(), torch.zeros((), dtype=torch.float64)
        return (
            _weighted(self.positives_U, torch.logaddexp(-scores_U, zero))
            + _weighted(self.negatives_U, torch.logaddexp(scores_U, zero))
        ) / self.samples

    def normalized_entropy(self) -> float:
        if self.positives in (0, self.samples):
            return math.nan
        rate = self.positives / self.samples
        return self.log_loss() / -(rate * math.log(rate) + (1 - rate) * math.log1p(-rate))


def _weighted(counts_U: Tensor, losses_U: Tensor) -> float:
    some_U = counts_U > 0  # nobody's infinite loss is no loss, not NaN
    return float((counts_U[some_U] * losses_U[some_U]).sum())


def _checked(scores_B: Tensor, labels_B: Tensor) -> tuple[Tensor, Tensor]:
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
