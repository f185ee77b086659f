"""One half of the held-out samples: what fp32 says of it, and what the engine says with a recipe.

Combinations are scored by the engine that would serve them, so nothing is left to find out when one is chosen.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from laconic.adapt.harm import Harm, measure_harm
from laconic.data import Samples
from laconic.errors import ConfigError
from laconic.quantize.formats import Recipe
from laconic.quantize.search.drafts import Drafts
from laconic.quantize.search.held_out import labels
from laconic.train.metrics import Evaluation, Predictions

__all__ = ["Half", "Scored", "check_finite"]


@dataclass(frozen=True, slots=True)
class Scored:
    """A recipe on a set of samples."""

    harm: Harm
    exact: Evaluation
    low: Evaluation


class Half:
    """Samples with their logits in fp32."""

    def __init__(self, drafts: Drafts, batches: tuple[Samples, ...]) -> None:
        self.drafts, self.batches = drafts, batches
        self.label_B = labels(batches)
        model = drafts.trained.dense_part()
        self.exact_B = torch.cat(
            [drafts.trained.logits(model, samples.dense_BF, samples.lookups) for samples in batches]
        )
        check_finite(self.exact_B)
        self._exact = _evaluate(self.exact_B, self.label_B)

    def score(self, recipe: Recipe, done: Callable[[int], None] = lambda samples: None) -> Scored:
        """Compare a recipe with fp32; ``done`` is called with the samples of every batch."""
        engine, scores = self.drafts.engine(recipe), []
        for samples in self.batches:
            dense_BF = samples.dense_BF.contiguous().numpy()
            scores.append(torch.from_numpy(engine.logits(dense_BF, samples.lookups)))
            done(len(samples))
        changed_B = torch.cat(scores)
        harm = measure_harm(self.exact_B, changed_B, self.label_B)
        return Scored(harm, self._exact, _evaluate(changed_B, self.label_B))


def check_finite(exact_B: Tensor) -> None:
    """Raise where a model is beyond help."""
    if not bool(torch.isfinite(exact_B).all()):
        raise ConfigError(
            "quantize: the model in fp32 gives logits that are no numbers on held-out samples; it did not train"
        )


def _evaluate(logits_B: Tensor, label_B: Tensor) -> Evaluation:
    """AUC, log loss and normalized entropy; NaN where a logit is no finite number."""
    if not bool(torch.isfinite(logits_B).all()):
        nothing = math.nan
        return Evaluation(samples=len(label_B), auc=nothing, log_loss=nothing, normalized_entropy=nothing)
    predictions = Predictions()
    predictions.add(logits_B, label_B)
    return predictions.evaluate()
