"""``python -m benchmarks adapt``: accuracy and bytes in rehearsal, step times on real links.

Is ``auto`` as fast as the best fixed way to send, whatever the link? The setting is that of
``python -m benchmarks train``: two pinned hosts, Criteo Terabyte's tables, Zipf lookups. Guard and
economy of ``auto`` have settled before the clock starts; their later reviews, ever further apart,
are not in these times.

A step is made of these parts, as the SC'24 paper divides it:

forward      ids and rows: encoding, the wire and decoding
backward     the same for their gradients
compute      the same batch on one rank with nothing sent
all-reduce   the rest of the step: dense gradients, and waiting for the slowest

Ids and rows of the next batch travel while this one is computed, so that parts may overlap and add
up to more than a step; there is no rest then.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from rich.console import Group, RenderableType
from rich.table import Table

from benchmarks.adaptation import trials
from benchmarks.adaptation.trials import (
    EncoderRow,
    PolicyOutcome,
    PolicyTrial,
    compare_encoders,
    encoder_table,
    run_trial,
)
from benchmarks.harness import Interval, data_sets, grouped, in_processes, link_text, paired_ratios, table_of
from benchmarks.training.benchmark import TERABYTE
from benchmarks.training.worker import Steps, TrainingPool
from laconic.adapt.settings import CompressionSettings
from laconic.adapt.tune.measure import Measured
from laconic.data import DataSettings, SyntheticSettings, open_source
from laconic.demo.measure import RunFigures, step_ms

_GENERATED = SyntheticSettings(kind="synthetic", samples=400_000)
_HOSTS = 2
_FIXED = ("plain_pairwise", "fp16_pairwise", "int8_pairwise", "rows_fp32_pairwise", "laconic_pairwise")
_CAP = 300_000
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class StepPhases:
    """Milliseconds of a step."""

    forward: float
    backward: float
    all_reduce: float
    compute: float


def phases_of(answer: RunFigures, alone: RunFigures) -> StepPhases:
    """Divide the median step of a method; ``alone`` is one rank that sends nothing."""
    forward, backward = answer.ms_ids + answer.ms_forward, answer.ms_backward
    compute = step_ms(alone)
    return StepPhases(forward, backward, max(step_ms(answer) - forward - backward - compute, 0.0), compute)


@dataclass(frozen=True, kw_only=True, slots=True)
class PolicyRow:
    """What was measured of one policy; None: not measured in rows of this kind."""

    data: str
    policy: str
    decay: str = "none"
    ratio_forward: float | None = None
    """Bytes of plain pooled float32 rows and raw ids over those sent for rows and ids."""
    ratio_backward: float | None = None
    bytes_sent: float | None = None
    """Bytes of rows, ids and gradients of all ranks, per step."""
    auc_delta: float | None = None
    """Mean of paired differences to exact communication."""
    auc_delta_sd: float | None = None
    """Standard deviation of the pairs."""
    log_loss_delta: float | None = None
    pairs: int = 0
    rate_mbit: float | None = None
    """Rate of every link; None where no time was measured, or loopback."""
    step_ms: float | None = None
    ratio_to_best: Interval | None = None
    """Step time over that of the fastest other: mean of paired ratios and its 95 % interval."""
    parts_ms: StepPhases | None = None
    """Milliseconds of the step's phases."""
    bypassed_tables: int | None = None
    """Directions of tables that the economy does not compress."""


@dataclass(frozen=True, slots=True)
class AdaptationResult:
    """All rows; those of encoders name a ``table``."""

    rows: list[PolicyRow]
    encoders: list[EncoderRow]

    def all_rows(self) -> list[PolicyRow | EncoderRow]:
        """Return rows of policies first."""
        return [*self.rows, *self.encoders]


def run_adaptation_benchmark(
    *, data: Path | None, seeds: int | None, rates_mbit: Sequence[float | None], full: bool, say: Say
) -> AdaptationResult:
    """Run all parts; ``seeds`` defaults to 5 pairs for the full benchmark and 2 otherwise."""
    rows: list[PolicyRow] = []
    encoders: list[EncoderRow] = []
    with data_sets(data, generated=_GENERATED) as sets:
        for name, settings in sets.items():
            say(f"{name}: measuring tables")
            source = open_source(settings)
            stage, measured = trials.measure_set(name, source, settings)
            say(f"{name}: comparing encoders")
            encoders += compare_encoders(name, stage, source)
            del stage  # as large as the tables, and epochs are trained in other processes
            steps = source.samples_in("train") // 1024
            runs = _trials(name, settings, measured, steps, seeds or (5 if full else 2), full)
            rows += _named(accuracy_rows(list(_run(runs, say))))
    if rates_mbit:
        rows += _time_policies(rates_mbit, 24 if full else 5, say)
    return AdaptationResult(rows, encoders)


def _trials(
    name: str, data: DataSettings, measured: Measured, steps: int, seeds: int, full: bool
) -> list[PolicyTrial]:
    """Return trials of all policies on one data set for each seed; an epoch has ``steps`` steps."""
    candidates: list[tuple[str, str, CompressionSettings | Literal["sc24"]]] = [
        ("exact", "none", trials.exact()),
        ("sc24", "none", "sc24"),
        ("auto", "none", trials.auto()),
    ]
    bounds = trials.GLOBAL_BOUNDS if full else trials.GLOBAL_BOUNDS[1:3]
    candidates += [(f"global {bound:g}", "none", trials.global_bound(bound)) for bound in bounds]
    budgets = trials.TUNE_BUDGETS if full else trials.TUNE_BUDGETS[:1]
    candidates += [(f"tuned {100 * each:g} %", "none", trials.tuned(measured, each)) for each in budgets]
    if full:
        base = trials.global_bound(trials.GLOBAL_BOUNDS[1])
        for label, compression in trials.decayed(base, max(steps // 5, 1), (2.0, 3.0, 4.0)):
            candidates.append((f"global {trials.GLOBAL_BOUNDS[1]:g}", label, compression))
    return [
        PolicyTrial(name, data, policy, decay, compression, seed)
        for seed in range(seeds)
        for policy, decay, compression in candidates
    ]


def _run(trials: Sequence[PolicyTrial], say: Say) -> Iterator[PolicyOutcome]:
    for done, outcome in enumerate(in_processes(run_trial, trials), start=1):
        say(f"{outcome.trial.name}: {done} of {len(trials)} epochs")
        yield outcome


def _named(rows: Sequence[PolicyRow]) -> list[PolicyRow]:
    """Call the best that keeps the AUC ``global`` and ``tuned``; if none does, the most careful."""
    chosen = {}
    for family in ("global", "tuned"):
        members = [row for row in rows if row.policy.startswith(family + " ") and row.decay == "none"]
        keeping = [row for row in members if (row.auc_delta or 0.0) >= trials.KEEPS_AUC]
        careful = max(members, key=lambda row: row.bytes_sent or 0.0)
        chosen[family] = min(keeping, key=lambda row: row.bytes_sent or 0.0) if keeping else careful
    return [*rows, *(replace(row, policy=family) for family, row in chosen.items())]


def accuracy_rows(outcomes: Sequence[PolicyOutcome]) -> list[PolicyRow]:
    """Make one row for each data set and policy, paired with exact runs of the same seed."""
    exact = {(o.trial.name, o.trial.seed): o for o in outcomes if o.trial.policy == "exact"}
    rows = []
    groups = grouped(outcomes, lambda o: (o.trial.name, o.trial.policy, o.trial.decay))
    for (data, policy, decay), mine in groups.items():
        pairs = [(o, exact[data, o.trial.seed]) for o in mine]
        aucs = [ours.auc - theirs.auc for ours, theirs in pairs]
        rows.append(
            PolicyRow(
                data=data,
                policy=policy,
                decay=decay,
                ratio_forward=statistics.fmean(o.ratio_forward for o in mine),
                ratio_backward=statistics.fmean(o.ratio_backward for o in mine),
                bytes_sent=statistics.fmean(o.bytes_sent for o in mine),
                auc_delta=statistics.fmean(aucs),
                auc_delta_sd=statistics.stdev(aucs) if len(aucs) > 1 else None,
                log_loss_delta=statistics.fmean(ours.log_loss - theirs.log_loss for ours, theirs in pairs),
                pairs=len(mine),
            )
        )
    return rows


def _time_policies(rates_mbit: Sequence[float | None], rounds: int, say: Say) -> list[PolicyRow]:
    """Time all policies at each rate; None: loopback."""
    rows: list[PolicyRow] = []
    limited = [rate for rate in rates_mbit if rate is not None]
    if limited:
        with TrainingPool(_HOSTS, rate_mbit=limited[-1]) as pool:
            for rate in sorted(limited, reverse=True):  # settling is quickest on the fastest link
                pool.set_rate(rate)
                say(f"timing at {rate:.0f} Mbit/s")
                rows += _timing_rows(_time(pool, rounds), rate)
    if None in rates_mbit:
        with TrainingPool(_HOSTS) as pool:
            say("timing on loopback")
            rows += _timing_rows(_time(pool, rounds), None)
    return rows


def _time(pool: TrainingPool, rounds: int) -> dict[str, RunFigures]:
    job = Steps(
        data=SyntheticSettings(kind="synthetic", cap=_CAP),
        model=TERABYTE,
        methods=("alone", *_FIXED, "auto"),
        batch=1024,
        rounds=rounds,
        steps=3,
    )
    return pool.time_steps(job)


def _timing_rows(answers: dict[str, RunFigures], rate: float | None) -> list[PolicyRow]:
    best = min(_FIXED, key=lambda name: step_ms(answers[name]))
    rows = []
    for name, answer in answers.items():
        if name == "alone":
            continue
        off = sum(
            table[direction] is None or not str(table[direction]).startswith("Bounded")
            for table in answer.tables
            for direction in ("forward", "backward")
        )
        rows.append(
            PolicyRow(
                data="synthetic",
                policy=name.removesuffix("_pairwise"),
                rate_mbit=rate,
                step_ms=step_ms(answer),
                ratio_to_best=paired_ratios(answer.round_ms, answers[best].round_ms)
                if name == "auto"
                else None,
                parts_ms=phases_of(answer, answers["alone"]),
                bypassed_tables=off if name == "auto" else None,
            )
        )
    return rows


def render(result: AdaptationResult) -> RenderableType:
    """Make tables of policies and encoders for each data set, and one of times for each link."""
    accuracy = [row for row in result.rows if row.auc_delta is not None]
    timing = [row for row in result.rows if row.step_ms is not None]
    tables = [_accuracy_table(data, here) for data, here in grouped(accuracy, lambda row: row.data).items()]
    tables += [
        encoder_table(data, here) for data, here in grouped(result.encoders, lambda row: row.data).items()
    ]
    tables += [_timing_table(rate, here) for rate, here in grouped(timing, lambda row: row.rate_mbit).items()]
    return Group(*tables)


def _accuracy_table(data: str, rows: list[PolicyRow]) -> Table:
    return table_of(
        f"{data}: one epoch, 4 rehearsed ranks, {rows[0].pairs} paired runs",
        rows,
        ("policy", lambda row: row.policy),
        ("decay", lambda row: row.decay),
        ("rows + ids", lambda row: f"{row.ratio_forward:.1f}x"),
        ("gradients", lambda row: f"{row.ratio_backward:.1f}x"),
        ("sent per step", lambda row: f"{(row.bytes_sent or 0) / 1e3:.1f} kB"),
        ("AUC - exact", lambda row: f"{row.auc_delta:+.5f}"),
        ("sd of pairs", lambda row: "" if row.auc_delta_sd is None else f"{row.auc_delta_sd:.5f}"),
        ("log loss - exact", lambda row: f"{row.log_loss_delta:+.5f}"),
    )


def _timing_table(rate: float | None, rows: list[PolicyRow]) -> Table:
    """Show steps and what they are made of; phases that overlap are counted twice."""

    def phase(name: str) -> tuple[str, Callable[[PolicyRow], str]]:
        heading = name.replace("_", "-")
        return heading, lambda row: "" if row.parts_ms is None else f"{getattr(row.parts_ms, name):.1f} ms"

    return table_of(
        f"step time: 2 hosts, {link_text(rate)}",
        rows,
        ("policy", lambda row: row.policy),
        ("step", lambda row: f"{row.step_ms:.1f} ms"),
        (
            "over the best other (95 %)",
            lambda row: "" if row.ratio_to_best is None else str(row.ratio_to_best),
        ),
        ("not compressed", lambda row: "" if row.bypassed_tables is None else str(row.bypassed_tables)),
        *(phase(name) for name in ("forward", "backward", "all_reduce", "compute")),
    )
