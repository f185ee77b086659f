"""What ``laconic quantize`` does with a workbench: search a recipe, or refresh an old one.

Precisions that were right stay right for a while, and a search takes minutes. So a new snapshot can
get the recipe of an old artifact, calibrated and verified again on samples of the new run. A recipe
that breaks its budget there is refused, and the parts that harm most are named.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from hashlib import blake2b
from pathlib import Path

import numpy as np

from laconic import kernels
from laconic.data import Samples
from laconic.errors import ConfigError
from laconic.quantize.formats import Artifact
from laconic.quantize.formats.features import Features, Population
from laconic.quantize.formats.result import ModelFigures, Objective, QuantizeResult, SampleCounts
from laconic.quantize.search.choose import explain_part, harm_figures, pareto
from laconic.quantize.search.debugger import PartError, debug
from laconic.quantize.search.latency import Stopwatch, engine_us
from laconic.quantize.search.probe import Probe
from laconic.quantize.search.search import Drafts, Found, Half, Scored, search
from laconic.quantize.search.sensitivity import MeasuredCandidate, MeasurementFile, measure_candidates
from laconic.quantize.search.workbench import Progress, Workbench, thinned
from laconic.serve.query import Query
from laconic.serve.watch.input_drift import InputDrift
from laconic.train.metrics import Evaluation

__all__ = [
    "QuantizedRun",
    "Refreshed",
    "SearchSettings",
    "Searched",
    "measurement_file",
    "population_of",
    "quantize_run",
    "refresh",
    "refresh_budget",
    "search_run",
    "with_figures",
]

_POPULATION = 16384  # samples from which the histograms of inputs are made
_PROBE = 8192


def population_of(features: Features, batches: tuple[Samples, ...]) -> Population:
    """Make histograms of every feature, over at least one sample."""
    total = sum(map(len, batches))
    drift = InputDrift(features.sample_schema, reference=total, window=total)
    for samples in batches:
        drift.add(_query(features, samples))
    return drift.population()


def _query(features: Features, samples: Samples) -> Query:
    lookups = samples.lookups
    unknown = [
        int((lookups.table(t)[0] == table.rows - 1).sum()) if table.unknown else 0
        for t, table in enumerate(features.tables)
    ]
    lengths_TB = lookups.offsets.diff().view(lookups.tables, lookups.samples).numpy()
    return Query(
        samples.dense_BF.numpy(), lookups.ids_L.numpy(), lengths_TB, np.array(unknown, dtype=np.int64)
    )


@dataclass(frozen=True, slots=True)
class SearchSettings:
    """Settings of a search."""

    budget: float
    """Largest increase of normalized entropy, as a share of it."""
    objective: Objective = "size"
    probe: int = _PROBE
    """Samples on which each candidate is measured."""
    batch: int = 256
    """Number of samples in a batch whose time is measured."""
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Searched:
    """The artifact that a search found, and the candidates that it chose from."""

    artifact: Artifact
    found: Found
    parts: list[list[MeasuredCandidate]]
    """Measured candidates, a list for every part."""


@dataclass(frozen=True, slots=True)
class QuantizedRun:
    """An artifact, and the result file of the search that found it."""

    artifact: Artifact
    result: QuantizeResult


def measurement_file(
    bench: Workbench, settings: SearchSettings, path: Path, *, fresh: bool
) -> MeasurementFile:
    """Open the file with measurements of this model, on these samples, by these kernels."""
    of = f"{bench.digest} {settings.probe} {settings.batch} {kernels.active().name}"
    return MeasurementFile(path, blake2b(of.encode(), digest_size=16).hexdigest(), fresh=fresh)


def quantize_run(
    bench: Workbench, settings: SearchSettings, file: MeasurementFile, title: str, progress: Progress
) -> QuantizedRun:
    """Search, time the engine, and put together the result."""
    searched = search_run(bench, settings, file, progress)
    us = _engine_times(bench, searched.artifact, settings.batch, progress)
    return QuantizedRun(searched.artifact, _result(bench, settings, searched, us, title))


def search_run(
    bench: Workbench, settings: SearchSettings, file: MeasurementFile, progress: Progress
) -> Searched:
    """Search, and return the artifact that was found."""
    parts = _measure(bench, settings, file, progress)
    drafts = Drafts(bench.trained, bench.observed, progress)
    progress("scoring in fp32", 0, 2)
    search_half = Half(drafts, bench.halves.search)
    progress("scoring in fp32", 1, 2)
    verification_half = Half(drafts, bench.halves.verification)
    progress("scoring in fp32", 2, 2)
    found = search(parts, settings.budget, settings.objective, search_half, verification_half, progress)
    artifact = with_figures(bench, drafts.artifact(found.chosen.recipe), found.verified, settings.budget)
    return Searched(artifact, found, parts)


def _measure(
    bench: Workbench, settings: SearchSettings, file: MeasurementFile, progress: Progress
) -> list[list[MeasuredCandidate]]:
    some = thinned(bench.halves.search, settings.probe)
    probe = Probe(bench.trained, some, bench.observed)
    stopwatch = Stopwatch(bench.trained, bench.halves.search, bench.observed, settings.batch)
    return measure_candidates(probe, stopwatch, file, progress)


def with_figures(bench: Workbench, artifact: Artifact, scored: Scored, budget: float) -> Artifact:
    """Add measured figures, the budget and the population of inputs to an artifact."""
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
    some = thinned(bench.halves.search, _POPULATION)
    return replace(artifact, metrics=metrics, population=population_of(artifact.features, some))


def _engine_times(bench: Workbench, artifact: Artifact, batch: int, progress: Progress) -> tuple[float, ...]:
    """Return the microseconds of a batch in fp32 and in low precision."""
    progress("timing the engine", 0, 1)
    times = engine_us(bench.trained, artifact, bench.halves.search, batch)
    progress("timing the engine", 1, 1)
    return times


def _result(
    bench: Workbench, settings: SearchSettings, searched: Searched, us: tuple[float, ...], title: str
) -> QuantizeResult:
    found, parts = searched.found, searched.parts
    served, harm = found.verified, harm_figures(found.verified.harm)
    assert harm is not None, "what is within a budget is finite"
    rows = {("table", feature.name): feature.rows for feature in bench.trained.features.tables}
    return QuantizeResult(
        title=title,
        objective=settings.objective,
        budget=settings.budget,
        seed=settings.seed,
        batch=settings.batch,
        samples=SampleCounts(
            probe=parts[0][0].harm.samples,
            search=sum(map(len, bench.halves.search)),
            verification=served.harm.samples,
        ),
        exact=_figures(served.exact, sum(part[0].bytes for part in parts), us[0]),
        low=_figures(served.low, searched.artifact.size_bytes, us[1]),
        predicted=found.chosen.harm,
        gap=found.chosen.gap,
        harm=harm,
        attempts=found.attempts,
        parts=tuple(
            explain_part(
                part,
                chosen,
                settings.objective,
                rows.get((chosen.candidate.part.kind, chosen.candidate.part.name)),
            )
            for part, chosen in zip(parts, found.chosen.parts, strict=True)
        ),
        pareto=tuple(pareto(parts, settings.budget)),
    )


def _figures(evaluation: Evaluation, size: int, us: float) -> ModelFigures:
    return ModelFigures(ne=evaluation.normalized_entropy, auc=evaluation.auc, bytes=size, us=us)


@dataclass(frozen=True, slots=True)
class Refreshed:
    """An old recipe on a new snapshot."""

    artifact: Artifact
    scored: Scored
    budget: float
    offenders: tuple[PartError, ...]
    """The parts that harm most, worst first; empty where the budget is kept."""

    @property
    def within(self) -> bool:
        """Whether the artifact may be served."""
        return self.scored.harm.within(self.budget)


def refresh_budget(old: Artifact, given: float | None) -> float:
    """Return the budget that was given, or the one that the artifact was made with."""
    if given is not None:
        return given
    if "budget" not in old.metrics:
        raise ConfigError(f"{old.folder}: it was made without a budget; say one with --budget, as 0.05%")
    return old.metrics["budget"]


def refresh(bench: Workbench, old: Artifact, budget: float, progress: Progress) -> Refreshed:
    """Apply an artifact's recipe to the workbench's model; ``ConfigError`` for another model's."""
    old.recipe.check(bench.trained.features.table_names, bench.trained.shape.layer_names())
    drafts = Drafts(bench.trained, bench.observed, progress)
    half = Half(drafts, bench.halves.verification)
    scored = half.score(old.recipe, "verifying with the engine", progress)
    artifact = with_figures(bench, drafts.artifact(old.recipe), scored, budget)
    offenders: tuple[PartError, ...] = ()
    if not scored.harm.within(budget):
        some = thinned(bench.halves.search, _PROBE)
        offenders = debug(bench.trained, artifact, some, progress).parts[:3]
    return Refreshed(artifact, scored, budget, offenders)
