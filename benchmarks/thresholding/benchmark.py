"""Which splits are measured: the paper's table, and Laconic's own setting over several seeds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import get_args

from benchmarks.data_sets import real_data_sets
from benchmarks.thresholding.forms import Form
from benchmarks.thresholding.trial import PLAIN, Case, Outcome, Trial, run_trial
from laconic.codecs.threshold import Threshold, ThresholdMethod

__all__ = ["DROPPED", "default_cases", "paper_cases", "run_thresholding_benchmark"]

DROPPED = (0.75, 0.9, 0.95, 0.98)
"""The levels of the paper's tables."""


def paper_cases(form: Form) -> list[Case]:
    """Return the paper's levels for two and three workers, by both methods; values travel as float32."""
    return [
        Case(f"{dropped:.0%} {method}", form, workers, _paper_threshold(dropped, method))
        for workers in (2, 3)
        for method in get_args(ThresholdMethod)
        for dropped in DROPPED
    ]


def _paper_threshold(dropped: float, method: ThresholdMethod) -> Threshold:
    return Threshold(keep=1 - dropped, method=method, values=None, gradients=None)


def default_cases() -> list[Case]:
    """Return Laconic's defaults in both forms, for two and three workers."""
    return [Case("default", form, workers, Threshold()) for form in get_args(Form) for workers in (2, 3)]


def run_thresholding_benchmark(
    *,
    data: Path,
    sets: Sequence[str] | None,
    cases: Sequence[Case],
    seeds: int,
    processes: int,
    say: Callable[[Outcome], None],
) -> list[Outcome]:
    """Train every case and the plain model for every seed, once through each data set."""
    with TemporaryDirectory() as scratch:
        found = real_data_sets(data, Path(scratch))
        trials = [
            Trial(name, found[name], case, seed)
            for seed in range(seeds)
            for name in (sets or found)
            for case in (PLAIN, *cases)
        ]
        outcomes = []
        for outcome in _run(trials, processes):
            say(outcome)
            outcomes.append(outcome)
    return outcomes


def _run(trials: Sequence[Trial], processes: int) -> Iterator[Outcome]:
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        yield from pool.map(run_trial, trials)
