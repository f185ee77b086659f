"""``python -m benchmarks adapt``: accuracy and bytes in rehearsal, step times on real links."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

from benchmarks.adaptation import policies
from benchmarks.adaptation.encoders import EncoderRow, compare_encoders
from benchmarks.adaptation.row import Row, accuracy_rows
from benchmarks.adaptation.timing import time_policies
from benchmarks.adaptation.trial import Outcome, Trial, run_trial
from benchmarks.data_sets import real_data_sets
from laconic.adapt.settings import ExchangeSettings
from laconic.adapt.tune.measure import Measured
from laconic.data import DataSettings, SyntheticSettings, open_source
from laconic.machine import cores

__all__ = ["AdaptationResult", "run_adaptation_benchmark"]

_GENERATED = SyntheticSettings(kind="synthetic", samples=400_000)


@dataclass(frozen=True, slots=True)
class AdaptationResult:
    """All rows."""

    rows: list[Row]
    encoders: list[EncoderRow]

    def as_json(self) -> list[dict[str, Any]]:
        """Rows as JSON takes them, of policies first; those of encoders name a ``table``."""
        return [*map(asdict, self.rows), *map(asdict, self.encoders)]


def run_adaptation_benchmark(
    *,
    data: Path | None,
    seeds: int | None,
    rates_mbit: Sequence[float | None],
    full: bool,
    say: Callable[[str], None],
) -> AdaptationResult:
    """Run all parts; ``seeds`` defaults to 5 pairs for the full benchmark and 2 otherwise."""
    rows: list[Row] = []
    encoders: list[EncoderRow] = []
    with TemporaryDirectory() as scratch:
        sets: dict[str, DataSettings] = {"generated": _GENERATED}
        if data is not None:
            sets = dict(real_data_sets(data, Path(scratch)))
        for name, settings in sets.items():
            say(f"{name}: measuring tables")
            source = open_source(settings)
            stage, measured = policies.measure_set(name, source, settings)
            say(f"{name}: comparing encoders")
            encoders += compare_encoders(name, stage, source)
            del stage  # as large as the tables, and epochs are trained in other processes
            steps = source.samples_in("train") // 1024
            trials = _trials(name, settings, measured, steps, seeds or (5 if full else 2), full)
            rows += _named(accuracy_rows(_run(trials, say)))
    if rates_mbit:
        rows += time_policies(rates_mbit, rounds=24 if full else 5, say=say)
    return AdaptationResult(rows, encoders)


def _trials(
    name: str, data: DataSettings, measured: Measured, steps: int, seeds: int, full: bool
) -> list[Trial]:
    """All policies of one data set, for each seed; ``steps``: of an epoch."""
    candidates: list[tuple[str, str, ExchangeSettings | Literal["sc24"]]] = [
        ("exact", "none", policies.exact()),
        ("sc24", "none", "sc24"),
        ("auto", "none", policies.auto()),
    ]
    bounds = policies.GLOBAL_BOUNDS if full else policies.GLOBAL_BOUNDS[1:3]
    candidates += [(f"global {bound:g}", "none", policies.global_bound(bound)) for bound in bounds]
    shares = policies.TUNE_SHARES if full else policies.TUNE_SHARES[:1]
    candidates += [(f"tuned {100 * share:g} %", "none", policies.tuned(measured, share)) for share in shares]
    if full:
        base = policies.global_bound(policies.GLOBAL_BOUNDS[1])
        for label, exchange in policies.decayed(base, max(steps // 5, 1), (2.0, 3.0, 4.0)):
            candidates.append((f"global {policies.GLOBAL_BOUNDS[1]:g}", label, exchange))
    return [
        Trial(name, data, policy, decay, exchange, seed)
        for seed in range(seeds)
        for policy, decay, exchange in candidates
    ]


def _run(trials: Sequence[Trial], say: Callable[[str], None]) -> list[Outcome]:
    """Train in as many processes as there are cores."""
    outcomes: list[Outcome] = []
    with ProcessPoolExecutor(cores(), mp_context=get_context("spawn")) as pool:
        for done, outcome in enumerate(pool.map(run_trial, trials), start=1):
            outcomes.append(outcome)
            say(f"{outcome.trial.name}: {done} of {len(trials)} epochs")
    return outcomes


def _named(rows: Sequence[Row]) -> list[Row]:
    """Call the best that keeps the AUC simply ``global`` and ``tuned``; of none that does, the most careful."""
    chosen = {}
    for family in ("global", "tuned"):
        members = [row for row in rows if row.policy.startswith(family + " ") and row.decay == "none"]
        keeping = [row for row in members if (row.auc_delta or 0.0) >= policies.KEEPS_AUC]
        careful = max(members, key=lambda row: row.bytes_sent or 0.0)
        chosen[family] = min(keeping, key=lambda row: row.bytes_sent or 0.0) if keeping else careful
    return [*rows, *(replace(row, policy=family) for family, row in chosen.items())]
