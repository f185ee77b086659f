"""Whole models, engine by engine: throughput at large batches, latency of single samples, size, accuracy."""

from __future__ import annotations

import gc
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.serving import bags, complexity, models, precisions
from benchmarks.serving.complexity import Fit, measure_complexity
from benchmarks.serving.engines import ENGINES, Contender, forget_compiled
from benchmarks.serving.models import (
    BATCH,
    Case,
    Part,
    data_sets,
    large_settings,
    reference_case,
    run_settings,
    trained_case,
)
from benchmarks.serving.precisions import with_precisions
from benchmarks.serving.row import Row
from benchmarks.serving.steps import Steps
from benchmarks.timing import one_core, one_thread, time_calls
from laconic.train.metrics import Evaluation, Predictions

__all__ = ["Result", "run_serving_benchmark"]

_TIMED = 96  # batches to time with; all are evaluated on
_TRAINING_STEPS = 100
_LARGE_STEPS = 200  # its rows are many, and seldom looked up
_BAG_ROWS = 4_000_000


@dataclass(frozen=True, slots=True)
class Result:
    """What the benchmark found."""

    rows: list[Row]

    fits: list[Fit]
    """The reference, then larger models."""

    def all_rows(self) -> list[Row]:
        """Of everything that was timed."""
        return [*self.rows, *(fit.row for fit in self.fits)]


def run_serving_benchmark(
    *, data: Path | None, full: bool, engines: Sequence[str], show: Callable[[str, float, int], None]
) -> Result:
    """Measure every engine on every model; engines that are not installed are left out."""
    rounds, batches = (15, (1, 64, BATCH)) if full else (5, (1, BATCH))
    rows = []
    with tempfile.TemporaryDirectory() as scratch, one_thread():
        most = None if full else _TRAINING_STEPS
        runs = {name: (run_settings(set_), most) for name, set_ in data_sets(data, Path(scratch)).items()}
        runs["large"] = large_settings(), _LARGE_STEPS
        searched = precisions.PARTS if "laconic" in engines else 0
        each = models.PARTS + searched + (2 + len(batches)) * len(engines) + len(batches)
        steps = Steps(len(runs) * each + 1 + complexity.PARTS + bags.PARTS, show)
        for name, (settings, most) in runs.items():
            case, bench = trained_case(name, settings, most, steps)
            if searched:
                case = with_precisions(case, bench, steps)
            del bench
            with one_core():
                rows += _measure(case, engines, batches, rounds, steps)
        with one_core():
            fits = measure_complexity(reference_case(_TIMED, steps), case, rounds, steps)
            del case
            gc.collect()
            rows += bags.measure_bags(_BAG_ROWS, rounds, steps)
    return Result(rows, fits)


def _measure(
    case: Case, engines: Sequence[str], batches: Sequence[int], rounds: int, steps: Steps
) -> list[Row]:
    forget_compiled()
    contenders = []
    for name in engines:
        steps.begin(f"{case.name}: loading {name}")
        try:
            contenders.append(ENGINES[name](case))
        except ModuleNotFoundError as error:
            steps.begin(f"{case.name}: no {error.name}, {name} is left out")
    accuracy = {}
    for contender in contenders:
        steps.begin(f"{case.name}: evaluating {contender.name}")
        accuracy[contender.name] = _evaluate(contender, case)
    rows = []
    for batch in batches:
        parts = [part.first(batch) for part in case.parts[:_TIMED]]
        for contender in contenders:
            steps.begin(f"{case.name}: batch {batch}, warming {contender.name} up")
            for part in parts[:3]:
                contender.logits(part)
        steps.begin(f"{case.name}: batch {batch}, timing")
        calls = {contender.name: _calls(contender, parts) for contender in contenders}
        seconds = time_calls(calls, rounds=rounds, turn_s=0.5, tell=steps.within)
        for contender in contenders:
            found = accuracy[contender.name]
            rows.append(
                Row.of_times(
                    seconds[contender.name],
                    engine=contender.name,
                    model=case.name,
                    batch=batch,
                    size_bytes=contender.size_bytes,
                    ne=found.normalized_entropy,
                    auc=found.auc,
                )
            )
    return rows


def _calls(contender: Contender, parts: list[Part]) -> Callable[[int], object]:
    return lambda i: contender.logits(parts[i % len(parts)])


def _evaluate(contender: Contender, case: Case) -> Evaluation:
    predictions = Predictions()
    for part in case.parts:
        assert len(part.label_B) == BATCH
        predictions.add(contender.logits(part).reshape(-1), part.label_B)
    return predictions.evaluate()
