"""``laconic quantize`` from a workbench to an artefact and what there is to say about it."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

import torch
from torch import Tensor

from laconic import kernels
from laconic.data import Samples
from laconic.errors import PlanError
from laconic.quant import Artefact, Recipe, quantize_model
from laconic.quantize.candidates import candidates
from laconic.quantize.choose import Objective, ParetoPoint, pareto
from laconic.quantize.harm import measure_harm
from laconic.quantize.held_out import thinned
from laconic.quantize.latency import Stopwatch, engine_us
from laconic.quantize.probe import Probe, Scorer
from laconic.quantize.result import quantize_result
from laconic.quantize.search import Found, Scored, evaluate, search
from laconic.quantize.sensitivity import Measurement, MeasurementFile, measure_candidates
from laconic.quantize.workbench import Tell, Workbench
from laconic.report.quantize_result import ModelFigures, QuantizeResult, SampleCounts
from laconic.serve import Engine
from laconic.train.metrics import Evaluation

__all__ = ["Quantized", "SearchSettings", "apply", "measurement_file", "quantize_run"]


@dataclass(frozen=True, slots=True)
class SearchSettings:
    """What is searched for, and how thoroughly."""

    budget: float
    """Largest increase of normalized entropy, as a share of it."""
    objective: Objective = "size"
    probe: int = 8192
    """Samples on which each candidate is measured."""
    batch: int = 256
    """Samples of a batch whose time is measured."""
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Quantized:
    """An artefact, and how it came about."""

    artefact: Artefact
    result: QuantizeResult


def measurement_file(
    bench: Workbench, settings: SearchSettings, path: Path, *, fresh: bool
) -> MeasurementFile:
    """Open the file of measurements of this model, on these samples, with these kernels."""
    of = f"{bench.digest} {settings.probe} {settings.batch} {kernels.active().name}"
    return MeasurementFile(path, blake2b(of.encode(), digest_size=16).hexdigest(), fresh=fresh)


def quantize_run(
    bench: Workbench, settings: SearchSettings, file: MeasurementFile, title: str, tell: Tell
) -> Quantized:
    """Search, make the artefact, and verify it once more as the engine serves it."""
    trained = bench.trained
    parts = _measure(bench, settings, file, tell)
    tell("scoring in fp32", 0, 2)
    search_half = Scorer(trained, bench.halves.search, bench.observed)
    tell("scoring in fp32", 1, 2)
    verification_half = Scorer(trained, bench.halves.verification, bench.observed)
    tell("scoring in fp32", 2, 2)
    found = search(parts, settings.budget, settings.objective, search_half, verification_half, tell)
    curve = pareto(parts, settings.budget)
    artefact, served = apply(bench, found.chosen.recipe, verification_half, settings.budget, tell)
    if not served.harm.within(settings.budget):
        raise PlanError(
            f"quantize: the engine changes NE by {served.harm.measured:+.4%}, its emulation by "
            f"{found.verified.harm.measured:+.4%}, and the budget is {settings.budget:.4%}; try LACONIC_KERNELS=reference"
        )
    us = _engine_times(bench, artefact, settings.batch, tell)
    return Quantized(artefact, _result(bench, settings, parts, found, served, artefact, us, curve, title))


def _measure(
    bench: Workbench, settings: SearchSettings, file: MeasurementFile, tell: Tell
) -> list[list[Measurement]]:
    some = thinned(bench.halves.search, settings.probe)
    probe = Probe(bench.trained, some, bench.observed)
    stopwatch = Stopwatch(bench.trained, bench.halves.search, bench.observed, settings.batch)
    total = len(candidates(probe.names, bench.trained.shape.layer_names()))
    done = 0

    def next_one(_: object) -> None:
        nonlocal done
        done += 1
        tell("measuring candidates", done, total)

    return measure_candidates(probe, stopwatch, file, next_one)


def apply(
    bench: Workbench, recipe: Recipe, half: Scorer, budget: float, tell: Tell
) -> tuple[Artefact, Scored]:
    """Quantise the whole model, and score a half with the engine."""
    trained, total = bench.trained, bench.trained.shape.tables
    done = 0

    def say(_: str) -> None:
        nonlocal done
        tell("quantising tables", done, total)
        done += 1

    plain = quantize_model(trained, recipe, bench.observed, say=say)
    tell("quantising tables", total, total)
    changed_B = _engine_logits(plain, half.batches, tell)
    harm = measure_harm(half.exact_B, changed_B, half.label_B)
    scored = Scored(harm, evaluate(half.exact_B, half.label_B), evaluate(changed_B, half.label_B))
    return _with_metrics(plain, scored, budget), scored


def _engine_logits(artefact: Artefact, batches: tuple[Samples, ...], tell: Tell) -> Tensor:
    engine, scores = Engine(artefact), []
    for k, samples in enumerate(batches):
        scores.append(torch.from_numpy(engine.logits(samples.dense_BF.contiguous().numpy(), samples.lookups)))
        tell("verifying with the engine", k + 1, len(batches))
    return torch.cat(scores)


def _with_metrics(artefact: Artefact, scored: Scored, budget: float) -> Artefact:
    metrics = {
        "budget": budget,
        "ne_fp32": scored.exact.normalized_entropy,
        "ne": scored.low.normalized_entropy,
        "ne_change": scored.harm.measured,
        "ne_change_se": scored.harm.measured_se,
        "ne_change_expected": scored.harm.expected,
        "auc_fp32": scored.exact.auc,
        "auc": scored.low.auc,
        "samples": float(scored.harm.samples),
    }
    return Artefact(
        artefact.shape, artefact.features, artefact.recipe, artefact.tables, artefact.layers, metrics
    )


def _engine_times(bench: Workbench, artefact: Artefact, batch: int, tell: Tell) -> tuple[float, ...]:
    """Microseconds of a batch in fp32 and in low precision."""
    tell("timing the engine", 0, 1)
    recipe = Recipe.uniform(artefact.recipe.tables, artefact.recipe.layers)
    exact = quantize_model(bench.trained, recipe)
    times = engine_us((exact, artefact), bench.halves.search, batch)
    tell("timing the engine", 1, 1)
    return times


def _result(
    bench: Workbench,
    settings: SearchSettings,
    parts: list[list[Measurement]],
    found: Found,
    served: Scored,
    artefact: Artefact,
    us: tuple[float, ...],
    curve: list[ParetoPoint],
    title: str,
) -> QuantizeResult:
    exact_bytes = sum(part[0].bytes for part in parts)
    return quantize_result(
        title=title,
        objective=settings.objective,
        budget=settings.budget,
        seed=settings.seed,
        batch=settings.batch,
        samples=SampleCounts(
            probe=parts[0][0].harm.samples,
            search=found.attempts[-1].search.samples,
            verification=served.harm.samples,
        ),
        exact=_figures(served.exact, exact_bytes, us[0]),
        low=_figures(served.low, artefact.size_bytes, us[1]),
        harm=served.harm,
        found=found,
        parts=parts,
        rows={feature.name: feature.rows for feature in bench.trained.features.tables},
        curve=curve,
    )


def _figures(evaluation: Evaluation, size: int, us: float) -> ModelFigures:
    return ModelFigures(ne=evaluation.normalized_entropy, auc=evaluation.auc, bytes=size, us=us)
