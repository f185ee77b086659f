"""The precision search: choose a combination of candidates, measure it, verify it on new samples.

The harm of a combination is predicted as the sum of the harms of its parts, as if errors did not
meet. They do, so the combination itself is measured on all samples of the search half. If it
exceeds the budget, the budget is tightened by the excess and another combination is solved for.
Only one that passes is scored on the verification half. If that half refuses it, the budget is
tightened too. The result says how often that half was scored: each time makes it less unseen.

Combinations are scored by the engine that would serve them, so no difference is left to find later.
A table is quantized only when its precision changes: of every table the bytes in the latest
precision are kept, so all tables together take as much memory as one artifact. An engine copies
its tables, so each scores a group of batches with just the rows that these look up.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from laconic.adapt.harm import Harm, measure_harm
from laconic.data import Samples
from laconic.errors import PlanError
from laconic.quantize.formats import Artifact, Recipe, TablePrecision, quantize_model
from laconic.quantize.formats.layers import Observed
from laconic.quantize.formats.quantize import quantize_table
from laconic.quantize.formats.result import Attempt, Objective
from laconic.quantize.formats.table_rows import GROUP_VALUES, groups
from laconic.quantize.formats.trained_model import TrainedModel
from laconic.quantize.search.choose import Chosen, choose, harm_figures
from laconic.quantize.search.compact import Compact
from laconic.quantize.search.sensitivity import MeasuredCandidate
from laconic.quantize.search.workbench import Progress, check_finite, labels, no_progress
from laconic.serve import Engine
from laconic.train.metrics import Evaluation
from laconic.train.score_histogram import ScoreHistogram

__all__ = ["Drafts", "Found", "Half", "Scored", "search"]

_MOST_ATTEMPTS = 12
_STEP = 0.95  # a budget that was broken is multiplied by this, or by less
_CARE = 0.98  # a little less than would have sufficed


class Drafts:
    """Makes the artifacts that a search tries; the last one is what it decides for."""

    def __init__(self, trained: TrainedModel, observed: Mapping[str, Observed], progress: Progress) -> None:
        self.trained, self._observed, self._tell = trained, observed, progress
        self._tables: dict[str, tuple[TablePrecision, Tensor]] = {}

    def artifact(self, recipe: Recipe) -> Artifact:
        """Quantize the model by a recipe; ``ConfigError`` where a format cannot hold a table."""
        trained = self.trained
        recipe.check(trained.features.table_names, trained.shape.layer_names())
        changed = [name for name, precision in recipe.tables.items() if not self._has(name, precision)]
        for done, name in enumerate(changed):
            self._tell("quantizing tables", done, len(changed))
            self._tables.pop(name, None)  # its memory is needed
            precision = recipe.tables[name]
            self._tables[name] = precision, quantize_table(trained.tables[name], precision)
        if changed:
            self._tell("quantizing tables", len(changed), len(changed))
        tables = {name: stored for name, (_, stored) in self._tables.items()}
        return quantize_model(trained, recipe, self._observed, tables=tables)

    def _has(self, name: str, precision: TablePrecision) -> bool:
        return name in self._tables and self._tables[name][0] == precision


@dataclass(frozen=True, slots=True)
class Scored:
    """What a recipe does to the predictions on a set of samples."""

    harm: Harm
    exact: Evaluation
    low: Evaluation


class Half:
    """A half of the held-out samples, with their logits in fp32."""

    def __init__(self, drafts: Drafts, batches: tuple[Samples, ...]) -> None:
        self.drafts, self.batches = drafts, batches
        self.label_B = labels(batches)
        model = drafts.trained.dense_model()
        inputs = [(samples.dense_BF, samples.lookups) for samples in batches]
        self.exact_B = torch.cat(list(drafts.trained.logits_of_batches(model, inputs)))
        check_finite(self.exact_B)
        self._exact = _evaluate(self.exact_B, self.label_B)

    def score(self, recipe: Recipe, what: str = "scoring", progress: Progress = no_progress) -> Scored:
        """Compare a recipe with fp32; ``what`` names this work to ``progress``."""
        artifact, scores, done = self.drafts.artifact(recipe), [], 0
        most = GROUP_VALUES // artifact.shape.dim
        for group in groups(self.batches, lambda samples: len(samples.lookups.ids_L), most):
            compact = Compact(group)
            engine = Engine(compact.artifact(artifact))  # a copy of all tables would double the artifact
            for samples, lookups in zip(group, compact.lookups, strict=True):
                dense_BF = samples.dense_BF.contiguous().numpy()
                scores.append(torch.from_numpy(engine.logits(dense_BF, lookups)))
                done += len(samples)
                progress(what, done, len(self.label_B))
        changed_B = torch.cat(scores)
        harm = measure_harm(self.exact_B, changed_B, self.label_B)
        return Scored(harm, self._exact, _evaluate(changed_B, self.label_B))


def _evaluate(logits_B: Tensor, label_B: Tensor) -> Evaluation:
    """Return AUC, log loss and normalized entropy; all are NaN where a logit is not finite."""
    if not bool(torch.isfinite(logits_B).all()):
        nothing = math.nan
        return Evaluation(samples=len(label_B), auc=nothing, log_loss=nothing, normalized_entropy=nothing)
    samples = ScoreHistogram()
    samples.add(logits_B, label_B)
    return Evaluation.of(samples)


@dataclass(frozen=True, slots=True)
class Found:
    """What a search found: its choice, the attempts before, and how it did when verified."""

    chosen: Chosen
    attempts: tuple[Attempt, ...]
    verified: Scored


def search(
    parts: Sequence[Sequence[MeasuredCandidate]],
    budget: float,
    objective: Objective,
    search_half: Half,
    verification_half: Half,
    progress: Progress = no_progress,
) -> Found:
    """Find the combination that takes least and keeps the budget on both halves.

    ``PlanError`` where none does.
    """
    attempts: list[Attempt] = []
    allowed = budget
    for _ in range(_MOST_ATTEMPTS):
        chosen = choose(parts, allowed, objective)
        found = search_half.score(chosen.recipe, "measuring a combination", progress)
        verified = None
        if found.harm.within(budget):
            verified = verification_half.score(chosen.recipe, "verifying it on unseen samples", progress)
        attempts.append(
            Attempt(
                budget=allowed,
                bytes=chosen.bytes,
                predicted=chosen.harm,
                search=harm_figures(found.harm),
                verification=None if verified is None else harm_figures(verified.harm),
            )
        )
        if verified is not None and verified.harm.within(budget):
            return Found(chosen, tuple(attempts), verified)
        broken = found.harm if verified is None else verified.harm
        excess = max(broken.measured, broken.estimate) / budget
        allowed = min(allowed, chosen.harm) * min(_STEP, _CARE / excess)
    raise PlanError(
        f"quantize: none of {len(attempts)} combinations is within the budget of {budget:.4%}; the last, solved for "
        f"{attempts[-1].budget:.4%}, changes NE by {broken.measured:+.4%} +- {broken.measured_se:.4%} on {broken.samples:,} "
        f"samples; raise --budget, or evaluate on more samples"
    )
