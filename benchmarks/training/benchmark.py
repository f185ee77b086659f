"""``python -m benchmarks train``: step times on limited links, bytes and accuracy on data sets.

Step times are of 26 tables with Criteo Terabyte's cardinalities, Zipf lookups and Terabyte's MLPs.
There is one rank per host and one host per core, because ranks that share a core would hide
communication behind each other's work. Methods take turns in one run. *Alone* is a rank's batch
with nothing sent: a step if communication cost nothing.

Accuracy and bytes are measured by ranks on this machine, whose links are not limited. Accuracy rows
are paired: one seed means the same first weights and the same order of batches for every method.
Byte rows use large batches and dimension 64, as SC'24 does.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, Literal

from rich.console import Group, RenderableType
from rich.table import Table

from benchmarks.harness import (
    Interval,
    data_sets,
    grouped,
    megabytes,
    paired_ratios,
    recipe_for,
    standard_error,
    table_of,
)
from benchmarks.training.worker import METHODS, Epoch, Steps, TrainingPool
from laconic.data import DataSettings, SyntheticSettings
from laconic.demo.measure import RunFigures, step_ms
from laconic.machine import cores
from laconic.train.settings import ModelSettings

PROFILE_SHARE = 0.855
"""Share of a step that SC'24's profile spends communicating."""
TERABYTE = ModelSettings(dim=64, bottom=(512, 256), top=(512, 512, 256))
_TOLERANCE, _ALLOWED = 0.01, 0.02  # when choosing a rate, when measured at it
_FIRST_MBIT = 200.0
_GENERATED = SyntheticSettings(kind="synthetic", cap=100_000, samples=1 << 19, eval_samples=1 << 16)
_RANKS = 4
_SMALL = ModelSettings(dim=16, bottom=(128, 64), top=(128, 64))
_LARGE = ModelSettings(dim=64, bottom=(128, 64), top=(128, 64))
_DIRECTIONS = ("forward", "backward", "ids", "dense")
Say = Callable[[str], None]


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainingRow:
    """What was measured of one method in one setting; None: not measured in rows of this kind."""

    kind: Literal["timing", "accuracy", "bytes"]
    data: str
    method: str
    rate_mbit: float | None = None
    """Rate of every link, in each direction; None: not limited."""
    hosts: int
    seed: int | None = None
    profile_matched: bool = False
    """The rate is the one at which plain communicates for 85.5 % of its step."""
    step_ms: float | None = None
    """Milliseconds of the median step, on rank 0."""
    communication_share: float | None = None
    """Part of a step beyond that of the same batch on one rank with nothing sent."""
    bytes_forward: float
    """Bytes of rows that a rank sends per step; the other three likewise."""
    bytes_backward: float
    bytes_ids: float
    bytes_dense: float
    auc: float | None = None
    log_loss: float | None = None


@dataclass(frozen=True, slots=True)
class StepRatio:
    """Laconic's step time over another method's on the same wire, paired by round."""

    rate_mbit: float
    other: str
    ratio: Interval


@dataclass(frozen=True, slots=True)
class TrainingResult:
    """All rows, and the ratios of step times with their confidence."""

    rows: list[TrainingRow]
    comparisons: list[StepRatio]


def run_training_benchmark(
    *, data: Path | None, rates_mbit: Sequence[float], hosts: int | None, seeds: int, full: bool, say: Say
) -> TrainingResult:
    """Measure step time, bytes and accuracy; ``full`` is what is published."""
    methods = tuple(METHODS)
    job = Steps(
        data=SyntheticSettings(kind="synthetic", cap=1_000_000),
        model=TERABYTE,
        methods=("alone", *methods, "plain_pairwise", "laconic_pairwise"),
        batch=1024,
        rounds=10 if full else 5,
        steps=5 if full else 3,
    )
    result = _time_methods(job, hosts or max(2, cores()), rates_mbit, say)
    with data_sets(data, synthetic=_GENERATED) as sets, TrainingPool(_RANKS) as pool:
        result.rows.extend(_measure_bytes(pool, sets.items(), methods, None if full else 25, say))
        some = list(sets.items()) if full else list(sets.items())[:1]
        compared = methods if full else ("plain", "laconic")
        result.rows.extend(_measure_accuracy(pool, some, compared, seeds, say))
    return result


def _time_methods(job: Steps, hosts: int, rates_mbit: Sequence[float], say: Say) -> TrainingResult:
    """Time all methods at the rate that matches the profile, and at the others."""
    result = TrainingResult([], [])
    with TrainingPool(hosts, rate_mbit=_FIRST_MBIT) as pool:
        say("building tables")
        pool.time_steps(job.model_copy(update={"rounds": 1, "steps": 1}))
        say("looking for the rate that matches the profile")
        probe = job.model_copy(update={"methods": ("alone", "plain"), "rounds": 3, "steps": 2})

        def alone_and_plain() -> tuple[float, float]:
            answers = pool.time_steps(probe)
            return step_ms(answers["alone"]), step_ms(answers["plain"])

        matching = pool.match_rate(PROFILE_SHARE, alone_and_plain, first=_FIRST_MBIT, tolerance=_TOLERANCE)
        for rate in (matching, *(other for other in rates_mbit if other != matching)):
            say(f"timing at {rate:.0f} Mbit/s")
            pool.set_rate(rate)
            answers = pool.time_steps(job)
            result.rows.extend(_timing_rows(answers, rate, hosts, rate == matching))
            result.comparisons.extend(_comparisons(answers, rate))
    return result


def _timing_rows(
    answers: dict[str, RunFigures], rate: float, hosts: int, wants_match: bool
) -> list[TrainingRow]:
    alone = step_ms(answers["alone"])
    # as measured now, not as it was when the rate was chosen: a busy machine moves it
    matched = wants_match and abs(1 - alone / step_ms(answers["plain"]) - PROFILE_SHARE) <= _ALLOWED
    return [
        TrainingRow(
            kind="timing",
            data="synthetic",
            method=method,
            rate_mbit=rate,
            hosts=hosts,
            profile_matched=matched,
            step_ms=step_ms(answer),
            communication_share=max(0.0, 1 - alone / step_ms(answer)),
            **_bytes(answer),
        )
        for method, answer in answers.items()
    ]


def _comparisons(answers: dict[str, RunFigures], rate: float) -> list[StepRatio]:
    found = []
    for other, answer in answers.items():
        ours = "laconic_pairwise" if other.endswith("_pairwise") else "laconic"
        if ours in answers and other not in ("alone", ours):
            found.append(StepRatio(rate, other, paired_ratios(answers[ours].round_ms, answer.round_ms)))
    return found


def _measure_bytes(
    pool: TrainingPool,
    sets: Iterable[tuple[str, DataSettings]],
    methods: Sequence[str],
    steps: int | None,
    say: Say,
) -> Iterator[TrainingRow]:
    """Count bytes of every method, for 2,048 samples a rank, dimension 64, and an epoch."""
    for name, data in sets:
        for method in methods:
            say(f"bytes: {name}, {method}")
            job = Epoch(data=data, model=_LARGE, method=method, batch=2048, steps=steps, evaluate=False)
            answer = pool.train_epoch(job)
            yield TrainingRow(kind="bytes", data=name, method=method, hosts=_RANKS, seed=0, **_bytes(answer))


def _measure_accuracy(
    pool: TrainingPool,
    sets: Iterable[tuple[str, DataSettings]],
    methods: Sequence[str],
    seeds: int,
    say: Say,
) -> Iterator[TrainingRow]:
    """Train every method once through each data set, for each seed; global batches of 1,024."""
    for name, data in sets:
        recipe = recipe_for(name)
        for seed, method in product(range(seeds), methods):
            say(f"accuracy: {name}, seed {seed}, {method}")
            job = Epoch(
                data=data, model=_SMALL, method=method, batch=1024 // _RANKS, seed=seed, recipe=recipe
            )
            answer = pool.train_epoch(job)
            yield TrainingRow(
                kind="accuracy",
                data=name,
                method=method,
                hosts=_RANKS,
                seed=seed,
                auc=answer.auc,
                log_loss=answer.log_loss,
                **_bytes(answer),
            )


def _bytes(answer: RunFigures) -> dict[str, Any]:
    return {f"bytes_{direction}": getattr(answer, f"bytes_{direction}") for direction in _DIRECTIONS}


def render(result: TrainingResult) -> RenderableType:
    """Make one table for each setting."""
    tables: list[Table] = []
    for (kind, rate, data), rows in grouped(
        result.rows, lambda row: (row.kind, row.rate_mbit, row.data)
    ).items():
        if kind == "timing":
            tables.append(
                _timing_table(rows, {c.other: c for c in result.comparisons if c.rate_mbit == rate})
            )
        else:
            tables.append(_bytes_table(data, rows) if kind == "bytes" else _accuracy_table(data, rows))
    return Group(*tables)


def _timing_table(rows: list[TrainingRow], paired: dict[str, StepRatio]) -> Table:
    matched = ", profile-matched" if rows[0].profile_matched else ""
    plain = next((row.step_ms for row in rows if row.method == "plain"), None)
    return table_of(
        f"step time: {rows[0].hosts} hosts, {rows[0].rate_mbit:.0f} Mbit/s{matched}",
        rows,
        ("method", lambda row: row.method),
        ("step", lambda row: f"{row.step_ms:.1f} ms"),
        ("communicating", lambda row: "" if row.method == "alone" else f"{row.communication_share:.1%}"),
        ("plain /", lambda row: f"{plain / row.step_ms:.2f}x" if plain and row.step_ms else ""),
        ("laconic / this (95 %)", lambda row: str(paired[row.method].ratio) if row.method in paired else ""),
        ("sent per rank", lambda row: megabytes(sum(getattr(row, f"bytes_{d}") for d in _DIRECTIONS))),
    )


def _bytes_table(data: str, rows: list[TrainingRow]) -> Table:
    plain = next((row for row in rows if row.method == "plain"), None)

    def fewer(size: Callable[[TrainingRow], float]) -> Callable[[TrainingRow], str]:
        return lambda row: f"{size(plain) / size(row):.1f}x fewer" if plain is not None else ""

    return table_of(
        f"bytes per step and rank: {data}, {rows[0].hosts} ranks, 2,048 samples each, dimension 64",
        rows,
        ("method", lambda row: row.method),
        ("rows", lambda row: megabytes(row.bytes_forward)),
        ("ids", lambda row: megabytes(row.bytes_ids)),
        ("gradients", lambda row: megabytes(row.bytes_backward)),
        ("dense", lambda row: megabytes(row.bytes_dense)),
        ("rows + ids", fewer(lambda row: row.bytes_forward + row.bytes_ids)),
        ("gradients", fewer(lambda row: row.bytes_backward)),
    )


def _accuracy_table(data: str, rows: list[TrainingRow]) -> Table:
    seeds = len({row.seed for row in rows})
    plain = {row.seed: row.auc for row in rows if row.method == "plain"}

    def difference(row: TrainingRow) -> float:
        return (row.auc or 0.0) - (plain.get(row.seed) or row.auc or 0.0)

    def error(mine: list[TrainingRow]) -> str:
        found = standard_error([difference(row) for row in mine])
        return "" if found is None or mine[0].method == "plain" else f"{found:.5f}"

    return table_of(
        f"accuracy: {data}, one epoch, {seeds} seed{'s' if seeds > 1 else ''}, paired",
        grouped((row for row in rows if row.auc is not None), lambda row: row.method).values(),
        ("method", lambda mine: mine[0].method),
        ("AUC", lambda mine: f"{statistics.fmean(row.auc or 0.0 for row in mine):.5f}"),
        (
            "AUC - plain",
            lambda mine: (
                "" if mine[0].method == "plain" else f"{statistics.fmean(map(difference, mine)):+.5f}"
            ),
        ),
        ("standard error", error),
        ("log loss", lambda mine: f"{statistics.fmean(row.log_loss or 0.0 for row in mine):.5f}"),
    )
