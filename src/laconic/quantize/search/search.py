"""The search: measure every candidate once, solve, measure the combination, verify it on samples never seen.

Harms of parts are added as if errors did not meet. They do, so the combination that was chosen is
measured itself, on all samples of the search; what exceeds the budget is taken off it, and another
combination solved for. Only one that passes is scored on the verification half. Where that refuses
it, the budget is tightened too, and the result says how often the half was looked at: each look
makes it a little less unseen.

Combinations are scored by the engine that would serve them, so nothing is left to find out when one
is chosen. A part is quantized when its choice changes, and only then: of every table the bytes of
the choice that was asked for last are kept, so all of them take what one artifact takes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from laconic.adapt.harm import Harm, measure_harm
from laconic.data import Samples
from laconic.errors import PlanError
from laconic.quantize.formats import Artifact, Recipe, TableChoice, quantize_model
from laconic.quantize.formats.layers import Observed
from laconic.quantize.formats.result import Attempt, Objective
from laconic.quantize.formats.rows import quantize_rows
from laconic.quantize.formats.trained_model import TrainedModel
from laconic.quantize.search.choose import Chosen, choose, harm_figures
from laconic.quantize.search.sensitivity import MeasuredCandidate
from laconic.quantize.search.workbench import Tell, check_finite, labels
from laconic.serve import Engine
from laconic.train.metrics import Evaluation, Predictions

__all__ = ["Drafts", "Found", "Half", "Scored", "score", "search"]

_MOST_ATTEMPTS = 12
_STEP = 0.95  # the least that a budget is tightened by, where it was broken
_CARE = 0.98  # beyond what would have sufficed


class Drafts:
    """What a search tries, up to what it decides for."""

    def __init__(self, trained: TrainedModel, observed: Mapping[str, Observed], tell: Tell) -> None:
        self.trained, self._observed, self._tell = trained, observed, tell
        self._tables: dict[str, tuple[TableChoice, Tensor]] = {}
        self._last: tuple[Recipe, Engine] | None = None

    def artifact(self, recipe: Recipe) -> Artifact:
        """Make the whole model as a recipe says; ``ConfigError`` where one of its formats cannot hold a table."""
        return self.engine(recipe).artifact

    def engine(self, recipe: Recipe) -> Engine:
        """Make what would serve it; that of the same recipe as before is there already."""
        if self._last is None or self._last[0] != recipe:
            self._last = None  # its memory is needed
            self._last = recipe, Engine(self._quantized(recipe))
        return self._last[1]

    def _quantized(self, recipe: Recipe) -> Artifact:
        trained = self.trained
        recipe.check(trained.features.table_names, trained.shape.layer_names())
        changed = [name for name, choice in recipe.tables.items() if not self._has(name, choice)]
        for done, name in enumerate(changed):
            self._tell("quantizing tables", done, len(changed))
            choice = recipe.tables[name]
            self._tables[name] = choice, quantize_rows(trained.tables[name], choice.format, choice.ranges)
        if changed:
            self._tell("quantizing tables", len(changed), len(changed))
        tables = {name: stored for name, (_, stored) in self._tables.items()}
        return quantize_model(trained, recipe, self._observed, tables=tables)

    def _has(self, name: str, choice: TableChoice) -> bool:
        return name in self._tables and self._tables[name][0] == choice


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


def _evaluate(logits_B: Tensor, label_B: Tensor) -> Evaluation:
    """AUC, log loss and normalized entropy; NaN where a logit is no finite number."""
    if not bool(torch.isfinite(logits_B).all()):
        nothing = math.nan
        return Evaluation(samples=len(label_B), auc=nothing, log_loss=nothing, normalized_entropy=nothing)
    predictions = Predictions()
    predictions.add(logits_B, label_B)
    return predictions.evaluate()


@dataclass(frozen=True, slots=True)
class Found:
    """What the search came to."""

    chosen: Chosen
    attempts: tuple[Attempt, ...]
    verified: Scored


def search(
    parts: Sequence[Sequence[MeasuredCandidate]],
    budget: float,
    objective: Objective,
    search_half: Half,
    verification_half: Half,
    tell: Tell = lambda what, done, total: None,
) -> Found:
    """Find the combination that takes least and is within the budget on both halves; ``PlanError`` where none is."""
    attempts: list[Attempt] = []
    allowed = budget
    for _ in range(_MOST_ATTEMPTS):
        chosen = choose(parts, allowed, objective)
        found = score(search_half, chosen.recipe, "measuring a combination", tell)
        verified = None
        if found.harm.within(budget):
            verified = score(verification_half, chosen.recipe, "verifying it on unseen samples", tell)
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


def score(
    half: Half, recipe: Recipe, what: str = "scoring", tell: Tell = lambda what, done, total: None
) -> Scored:
    """Score a half with a recipe; ``what`` is the name of this work."""
    done, total = 0, len(half.label_B)

    def more(samples: int) -> None:
        nonlocal done
        done += samples
        tell(what, done, total)

    return half.score(recipe, more)
