"""``laconic bench adapt``: accuracy and bytes in rehearsal, step times on real links."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

from laconic.bench.adaptation import policies
from laconic.bench.adaptation.row import Row, accuracy_rows
from laconic.bench.adaptation.timing import time_policies
from laconic.bench.adaptation.trial import Outcome, Trial, run_trial
from laconic.bench.training.real_data import real_data_sets
from laconic.data import DataSettings, SyntheticSettings, open_source
from laconic.machine import cores
from laconic.train.settings import ExchangeSettings

__all__ = ["AdaptationResult", "run_adaptation_benchmark"]

_GENERATED = SyntheticSettings(kind="synthetic", samples=400_000)


@dataclass(frozen=True, slots=True)
class AdaptationResult:
    """All rows."""

    rows: list[Row]

    def as_json(self) -> list[dict[str, Any]]:
        """Rows as JSON takes them."""
        return [asdict(row) for row in self.rows]


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
    with TemporaryDirectory() as scratch:
        sets: dict[str, DataSettings] = {"generated": _GENERATED}
        if data is not None:
            sets = dict(real_data_sets(data, Path(scratch)))
        for name, settings in sets.items():
            rows += _accuracy(name, settings, seeds or (5 if full else 2), full, say)
    if rates_mbit:
        rows += time_policies(rates_mbit, rounds=24 if full else 5, say=say)
    return AdaptationResult(rows)


def _accuracy(name: str, data: DataSettings, seeds: int, full: bool, say: Callable[[str], None]) -> list[Row]:
    """Train all policies of one data set."""
    say(f"{name}: measuring tables")
    measured = policies.measure_set(name, data)
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
        steps = open_source(data).samples_in("train") // 1024
        base = policies.global_bound(policies.GLOBAL_BOUNDS[1])
        for label, exchange in policies.decayed(base, max(steps // 5, 1), (2.0, 3.0, 4.0)):
            candidates.append((f"global {policies.GLOBAL_BOUNDS[1]:g}", label, exchange))
    trials = [
        Trial(name, data, policy, decay, exchange, seed)
        for seed in range(seeds)
        for policy, decay, exchange in candidates
    ]
    return _named(accuracy_rows(_run(trials, say)))


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
