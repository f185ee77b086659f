"""``python -m benchmarks train``: all its parts, one after the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.training.epochs import Data, measure_accuracy, measure_bytes
from benchmarks.training.methods import METHODS
from benchmarks.training.real_data import real_data_sets
from benchmarks.training.row import Row
from benchmarks.training.timing import Comparison, time_methods
from laconic.data import SyntheticSettings
from laconic.machine import cores

__all__ = ["TrainingResult", "run_training_benchmark"]

_GENERATED = {
    "synthetic": SyntheticSettings(kind="synthetic", cap=100_000, samples=1 << 19, eval_samples=1 << 16)
}


@dataclass(frozen=True, slots=True)
class TrainingResult:
    """All rows, and how sure the ratios of step times are."""

    rows: list[Row]
    comparisons: list[Comparison]

    def as_json(self) -> list[dict[str, Any]]:
        """Rows for machines."""
        return [asdict(row) for row in self.rows]


def run_training_benchmark(
    *,
    data: Path | None,
    rates_mbit: Sequence[float],
    hosts: int | None,
    seeds: int,
    full: bool,
    say: Callable[[str], None],
) -> TrainingResult:
    """Measure step time, bytes and accuracy; ``full`` is what is published, otherwise a few minutes."""
    methods = tuple(METHODS)
    timing = time_methods(
        (*methods, "plain_pairwise", "laconic_pairwise"),
        hosts=hosts or max(2, cores()),
        rates_mbit=rates_mbit,
        match_profile=True,
        cap=1_000_000,
        rounds=10 if full else 5,
        steps=5 if full else 3,
        say=say,
    )
    rows = list(timing.rows)
    with TemporaryDirectory() as scratch:
        sets: dict[str, Data] = dict(_GENERATED)
        if data is not None:
            sets = dict(real_data_sets(data, Path(scratch)))
        first = dict([next(iter(sets.items()))])
        rows += measure_bytes(sets, methods, None if full else 25, say)
        rows += measure_accuracy(
            sets if full else first, methods if full else ("plain", "laconic"), seeds, say
        )
    return TrainingResult(rows, timing.comparisons)
