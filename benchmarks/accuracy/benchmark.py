"""``python -m benchmarks accuracy``: log loss against paired exact runs, for defaults and policies.

A pair has the same first weights and the same order of samples. Beside it stands a null pair: the
same exact run from weights that differ by 1e-6. Every figure is a mean over pairs with its 95 %
interval, as a share of the exact run's loss. ``runs`` says how a run trains.

The whole takes hours, so every pair is written down as soon as it is there, and what the file has
is not run again.
"""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from rich.console import Group, RenderableType
from rich.table import Table

from benchmarks.accuracy.policies import EXACT, expand_policies, settings_of
from benchmarks.accuracy.runs import BATCH, MODEL, RANKS, AccuracyFigures, AccuracyRun, row_of, train_once
from benchmarks.harness import (
    append_line,
    data_sets,
    grouped,
    in_processes,
    mean_interval,
    run_settings,
    table_of,
)
from laconic.adapt.settings import CompressionSettings, PolicyFile
from laconic.adapt.tune.choose import choose
from laconic.adapt.tune.measure import measure, work_of
from laconic.adapt.tune.policy_file import policy_text
from laconic.config import parse
from laconic.data import SyntheticSettings, open_source
from laconic.errors import ConfigError
from laconic.train.rehearse import rehearse

_GENERATED = SyntheticSettings(kind="synthetic", cap=100_000, samples=1 << 19, eval_samples=1 << 17)
_EXACT = CompressionSettings.model_validate(EXACT)
OPTIMIZERS: Mapping[str, Literal["adagrad", "adam"]] = {"adagrad": "adagrad", "adam": "adam"}
Say = Callable[[str], None]
Row = dict[str, Any]


def run_accuracy_benchmark(
    *,
    data: Path | None,
    pairs: int,
    policies: Sequence[str],
    file: Path | None,
    say: Say,
    optimizer: str = "adagrad",
    processes: int | None = None,
) -> list[Row]:
    """Run the pairs that ``file`` lacks; return all that it has of these policies.

    ``optimizer``: what trains the dense part, Adagrad or Adam.
    """
    policies = expand_policies(policies)
    if optimizer not in OPTIMIZERS:
        raise ConfigError(f"--optimizer: expected {' or '.join(OPTIMIZERS)}, got {optimizer!r}")
    rows = _read(file)
    with data_sets(data, generated=_GENERATED) as sets:
        for name, settings in sets.items():
            base = AccuracyRun(name, settings, "exact", _EXACT, 0, optimizer=OPTIMIZERS[optimizer])
            mine = [row for row in rows if (row["data"], row["optimizer"]) == (name, optimizer)]
            for row in _pairs(base, pairs, policies, mine, processes, say):
                append_line(file, row)
                rows.append(row)
        names = list(sets)
    asked = [row for row in rows if row["policy"] in policies and row["data"] in names]
    return [row for row in asked if row["optimizer"] == optimizer]


def _read(file: Path | None) -> list[Row]:
    """Return what a file has; ``ConfigError`` for lines that are no pairs."""
    if file is None or not file.exists():
        return []
    try:
        rows = [json.loads(line) for line in file.read_text().splitlines() if line.strip()]
        needed = ("data", "policy", "seed")
        return [{"optimizer": "adagrad", **row, **{name: row[name] for name in needed}} for row in rows]
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigError(
            f"--json: {str(file)!r} has lines that are no pairs of this benchmark ({error}); name another file"
        ) from error


def _pairs(
    first: AccuracyRun,
    pairs: int,
    policies: Sequence[str],
    done: Sequence[Row],
    processes: int | None,
    say: Say,
) -> Iterator[Row]:
    """Yield pairs that are not done yet, seed by seed; exact and null runs serve all policies."""
    there = {(row["policy"], row["seed"]): row for row in done}
    runs: list[AccuracyRun] = []
    compressions = {policy: settings_of(policy) for policy in policies if policy != "tuned"}
    for seed in range(pairs):
        missing = [policy for policy in policies if (policy, seed) not in there]
        if not missing:
            continue
        if "tuned" in missing and "tuned" not in compressions:
            say(f"{first.data}: tuning")
            compressions["tuned"] = _tuned(first)
        base = replace(first, seed=seed)
        known = any(key[1] == seed for key in there)
        runs += [] if known else [base, replace(base, policy="null", nudged=True)]
        runs += [replace(base, policy=policy, compression=compressions[policy]) for policy in missing]
    exact: dict[int, Mapping[str, Any]] = {seed: row for (_, seed), row in there.items()}
    waiting: dict[int, AccuracyFigures] = {}
    for number, figures in enumerate(in_processes(train_once, runs, processes), start=1):
        say(f"{first.data}: {number} of {len(runs)} epochs")
        seed = figures.run.seed
        if figures.run.policy == "exact":
            waiting[seed] = figures
        elif figures.run.policy == "null":
            exact[seed] = _exact_part(waiting.pop(seed), figures)
        else:
            yield row_of(figures, exact[seed])


def _exact_part(exact: AccuracyFigures, null: AccuracyFigures) -> dict[str, Any]:
    """Return what all rows of a seed share."""
    return {
        "exact_log_loss": exact.log_loss,
        "null_log_loss": null.log_loss,
        "exact_progressive": exact.progressive,
        "null_progressive": null.progressive,
        "exact_auc": exact.auc,
    }


def _tuned(run: AccuracyRun) -> CompressionSettings:
    """Return the bounds of ``laconic tune`` at its defaults, for the runs of this benchmark."""
    settings = run_settings(
        run.data, run.settings, MODEL, _EXACT, batch=BATCH, seed=0, optimizer=run.optimizer
    )
    source = open_source(run.settings)
    steps, _ = work_of(source, BATCH, RANKS, None)
    found = choose(measure(rehearse(settings, source, RANKS), steps), "the benchmark")
    return parse(policy_text(found), PolicyFile).compression


def render(rows: Sequence[Row]) -> RenderableType:
    """Make a table for each data set and optimizer."""
    groups = grouped(rows, lambda row: (row["data"], row["optimizer"]))
    return Group(*(_table(f"{data}, {optimizer}", here) for (data, optimizer), here in groups.items()))


def _table(title: str, rows: Sequence[Row]) -> Table:
    dense = ("dense", lambda mine: _ratio(mine, "ratio_dense"))
    return table_of(
        f"{title}: log loss against exact runs, mean of pairs (95 % interval)",
        [_null(rows), *grouped(rows, lambda row: row["policy"]).values()],
        ("policy", lambda mine: mine[0]["policy"]),
        ("pairs", lambda mine: str(len(mine))),
        ("progressive", lambda mine: _shares(mine, "progressive")),
        ("against null", _against_null),
        ("test", lambda mine: _shares(mine, "log_loss")),
        ("AUC", lambda mine: "" if "auc" not in mine[0] else _difference(mine)),
        ("believed", _believed),
        ("rows + ids", lambda mine: _ratio(mine, "ratio_rows_ids")),
        ("gradients", lambda mine: _ratio(mine, "ratio_gradients")),
        *([dense] if any("ratio_dense" in row for row in rows) else []),
    )


def _null(rows: Sequence[Row]) -> list[Row]:
    """Return the null pairs, as if they were of a policy."""
    by_seed = {row["seed"]: row for row in rows}
    return [
        {
            "policy": "null",
            **{name: row[name] for name in ("exact_progressive", "exact_log_loss")},
            "progressive": row["null_progressive"],
            "log_loss": row["null_log_loss"],
        }
        for row in by_seed.values()
    ]


def _shares(rows: Sequence[Row], name: str) -> str:
    return _interval([row[name] / row[f"exact_{name}"] - 1 for row in rows])


def _interval(shares: Sequence[float]) -> str:
    mean, half = mean_interval(shares)
    return f"{mean:+.3%}" + ("" if math.isnan(half) else f" ({half:.3%})")


def _against_null(rows: Sequence[Row]) -> str:
    """Compare progressive losses with null runs: an exact run may be one that was lucky."""
    if "null_progressive" not in rows[0]:
        return ""
    return _interval([row["progressive"] / row["null_progressive"] - 1 for row in rows])


def _difference(rows: Sequence[Row]) -> str:
    mean, half = mean_interval([row["auc"] - row["exact_auc"] for row in rows])
    return f"{mean:+.5f}" + ("" if math.isnan(half) else f" ({half:.5f})")


def _believed(rows: Sequence[Row]) -> str:
    """Return the mean of the intervals in which runs believe their harm to be."""
    known = [row for row in rows if math.isfinite(row.get("estimate_high", math.nan))]
    if not known:
        return ""
    low, high = (statistics.fmean(row[f"estimate_{end}"] for row in known) for end in ("low", "high"))
    return f"{low:.3%} to {high:.3%}"


def _ratio(rows: Sequence[Row], name: str) -> str:
    return "" if name not in rows[0] else f"{statistics.fmean(row[name] for row in rows):.1f}x"
