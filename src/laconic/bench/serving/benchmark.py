"""Whole models, engine by engine: throughput at large batches, latency of single samples, size, accuracy."""

from __future__ import annotations

import gc
import math
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from laconic.bench.serving.bags import measure_bags
from laconic.bench.serving.engines import ENGINES, Contender
from laconic.bench.serving.models import BATCH, Case, Part, cases
from laconic.bench.serving.row import Row
from laconic.bench.serving.timing import one_core, time_calls
from laconic.train.metrics import Evaluation, Predictions

__all__ = ["run_serving_benchmark"]

_PARTS = 96  # batches to evaluate on and to time with


def run_serving_benchmark(
    *,
    data: Path | None,
    full: bool,
    engines: Sequence[str],
    say: Callable[[str], None],
    bag_rows: int = 4_000_000,
) -> list[Row]:
    """Measure every engine on every model; engines that are not installed are left out."""
    rows = []
    rounds = 15 if full else 5
    with tempfile.TemporaryDirectory() as scratch, one_core():
        for case in cases(data, Path(scratch), full=full, parts=_PARTS, say=say):
            rows += _measure(case, engines, (1, 64, 256) if full else (1, 256), rounds, say)
            del case
            gc.collect()
        if bag_rows:
            rows += measure_bags(bag_rows, rounds, say)
    return rows


def _measure(
    case: Case, engines: Sequence[str], batches: Sequence[int], rounds: int, say: Callable[[str], None]
) -> list[Row]:
    contenders = []
    for name in engines:
        say(f"{case.name}: loading {name}")
        try:
            contenders.append(ENGINES[name](case))
        except ModuleNotFoundError as error:
            say(f"{case.name}: no {error.name}, {name} is left out")
    accuracy = {}
    for contender in contenders:
        say(f"{case.name}: evaluating {contender.name}")
        accuracy[contender.name] = _evaluate(contender, case)
    rows = []
    for batch in batches:
        parts = [part.first(batch) for part in case.parts]
        for contender in contenders:
            say(f"{case.name}: batch {batch}, warming {contender.name} up")
            for part in parts[:3]:
                contender.logits(part)
        say(f"{case.name}: batch {batch}, timing")
        calls = {contender.name: _calls(contender, parts) for contender in contenders}
        seconds = time_calls(calls, rounds=rounds, turn_s=0.5)
        rows += [
            _row(contender, case, batch, seconds[contender.name], accuracy[contender.name])
            for contender in contenders
        ]
    return rows


def _calls(contender: Contender, parts: list[Part]) -> Callable[[int], object]:
    return lambda i: contender.logits(parts[i % len(parts)])


def _evaluate(contender: Contender, case: Case) -> Evaluation | None:
    if not case.labelled:
        return None
    predictions = Predictions()
    for part in case.parts:
        assert len(part.label_B) == BATCH
        predictions.add(contender.logits(part).reshape(-1), part.label_B)
    return predictions.evaluate()


def _row(
    contender: Contender,
    case: Case,
    batch: int,
    seconds: np.ndarray[tuple[int], np.dtype[np.float64]],
    accuracy: Evaluation | None,
) -> Row:
    median = float(np.median(seconds)) if len(seconds) else math.nan
    return Row(
        engine=contender.name,
        model=case.name,
        batch=batch,
        samples_per_s=batch / median,
        p50_ms=median * 1e3,
        p99_ms=float(np.quantile(seconds, 0.99)) * 1e3 if len(seconds) else math.nan,
        size_bytes=contender.size_bytes,
        ne=None if accuracy is None else accuracy.normalized_entropy,
        auc=None if accuracy is None else accuracy.auc,
    )
