"""``python -m benchmarks hybrid``: a DLRM that is divided over two ranks and replicated twice.

It runs on four hosts of the lab. ``plain`` sends activations, their gradients and gradients of
parameters as they are. ``hybrid`` sends the largest tenth of the former and the largest hundredth
of the latter (DCT, KDD'21, which reports 37 % less time). ``rounded`` sends the same within a
codec's bound. They are compared at the bandwidth at which plain communicates for 60 % of its step.
*Alone* is the same computation on all ranks at once with nothing sent, so that ranks that share a
core share it there as well. Methods take turns in one run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from rich.console import Group, RenderableType
from rich.table import Table

from benchmarks.harness import Interval, grouped, link_text, paired_ratios, table_of
from benchmarks.hybrid_worker import METHODS, PARTS, HybridAnswer, HybridSteps
from benchmarks.workers import WorkerPool
from laconic.data import DataSettings, SyntheticSettings
from laconic.train.settings import ModelSettings

SHARE = 0.6
"""Share of a step that plain communicates for."""
_HOSTS = 2 * PARTS
_WORKER = "benchmarks.hybrid_worker"
_FIRST_MBIT, _TOLERANCE = 800.0, 0.015
Say = Callable[[str], None]


@dataclass(frozen=True, kw_only=True, slots=True)
class HybridPlan:
    """One model, and the number of rounds and steps that are timed."""

    name: str
    model: ModelSettings
    batch: int
    """Samples of a replica."""
    data: DataSettings = SyntheticSettings(kind="synthetic", cap=100_000)  # noqa: RUF009
    """26 tables with Criteo Terabyte's cardinalities, cut, and Zipf lookups."""
    warmup: int = 12
    """Steps before the first that counts: thresholds of gradients settle."""
    rounds: int
    steps: int


KAGGLE = HybridPlan(
    name="DLRM of the paper",
    model=ModelSettings(dim=16, bottom=(512, 256, 64), top=(512, 256)),
    batch=1024,
    rounds=12,
    steps=4,
)
WIDE = HybridPlan(
    name="wide DLRM",
    model=ModelSettings(dim=16, bottom=(1024, 512), top=(2048, 2048, 1024)),
    batch=2048,
    rounds=8,
    steps=2,
)


def usual_plans(*, full: bool) -> list[HybridPlan]:
    """Return the plans of ``python -m benchmarks hybrid``; ``full`` has three times the rounds."""
    return [replace(plan, rounds=3 * plan.rounds) if full else plan for plan in (KAGGLE, WIDE)]


@dataclass(frozen=True, kw_only=True, slots=True)
class HybridRow:
    """What was measured of one method on one model."""

    method: str
    model: str
    samples: int
    """Samples of a replica in a step."""
    hosts: int
    replicas: int
    rate_mbit: float | None
    """Rate of every link, in each direction; None: loopback, not limited."""
    ms: float
    """Median of the slowest rank's steps, in milliseconds. Hosts that share a core take turns."""
    communication_share: float
    """Part of a step beyond that of the same computation with nothing sent."""
    bytes_sent_per_host: float
    """Bytes that a host sends by its interface's counter, headers included."""
    bytes_split: float
    """Bytes per host at splits, as the method counts them."""
    bytes_dense: float | None
    """Bytes per host of gradients; None: DDP does not count them."""
    equal: bool
    """Whether replicas have the same weights, bit for bit; it means nothing for ``alone``."""
    over_plain: Interval | None
    """Time over that of ``plain``, paired by round: mean and 95 % interval."""


def run_hybrid_benchmark(
    plans: Sequence[HybridPlan], *, rate_mbit: float | None, say: Say, lab: bool = True
) -> list[HybridRow]:
    """Time all models at a rate, or at the one that gives plain its share.

    ``lab=False``: on loopback at no particular rate, which says nothing about links.
    """
    rows: list[HybridRow] = []
    for plan in plans:
        rate = (rate_mbit or _FIRST_MBIT) if lab else None
        with WorkerPool(_WORKER, _HOSTS, rate_mbit=rate) as pool:
            say(f"{plan.name}: first steps")
            job = HybridSteps(
                methods=tuple(METHODS),
                data=plan.data,
                model=plan.model,
                batch=plan.batch,
                rounds=1,
                steps=plan.warmup,
            )
            pool.ask(job, HybridAnswer)
            if lab and rate_mbit is None:
                say(f"{plan.name}: looking for the rate")
                rate = _matching_rate(pool, job.model_copy(update={"rounds": 3, "steps": plan.steps}))
            say(f"{plan.name}: timing")
            timed = job.model_copy(update={"rounds": plan.rounds, "steps": plan.steps})
            rows += _rows(pool.ask(timed, HybridAnswer), plan, rate)
    return rows


def _matching_rate(pool: WorkerPool, job: HybridSteps) -> float:
    probe = job.model_copy(update={"methods": ("alone", "plain")})

    def alone_and_plain() -> tuple[float, float]:
        alone, plain = pool.ask(probe, HybridAnswer)
        return alone.ms, plain.ms

    return pool.match_rate(SHARE, alone_and_plain, first=_FIRST_MBIT, tolerance=_TOLERANCE)


def _rows(answers: Sequence[HybridAnswer], plan: HybridPlan, rate_mbit: float | None) -> list[HybridRow]:
    alone, plain = (
        next(answer for answer in answers if answer.method == name) for name in ("alone", "plain")
    )
    return [
        HybridRow(
            method=answer.method,
            model=plan.name,
            samples=plan.batch,
            hosts=_HOSTS,
            replicas=_HOSTS // PARTS,
            rate_mbit=rate_mbit,
            ms=answer.ms,
            communication_share=max(0.0, 1 - alone.ms / answer.ms),
            bytes_sent_per_host=answer.bytes_sent,
            bytes_split=answer.bytes_split,
            bytes_dense=answer.bytes_dense or None,
            equal=answer.equal,
            over_plain=None if answer in (alone, plain) else paired_ratios(answer.round_ms, plain.round_ms),
        )
        for answer in answers
    ]


def render(rows: Sequence[HybridRow]) -> RenderableType:
    """Make one table for each model."""
    return Group(*(_table(title, here) for title, here in grouped(rows, _title).items()))


def _title(row: HybridRow) -> str:
    what = f"{row.model}: {row.replicas} replicas of 2 parts, {row.samples:,} samples each"
    return f"{what}; {row.hosts} hosts, {link_text(row.rate_mbit)}"


def _table(title: str, rows: list[HybridRow]) -> Table:
    plain = next(row for row in rows if row.method == "plain").bytes_sent_per_host

    def sends(text: Callable[[HybridRow], str]) -> Callable[[HybridRow], str]:
        return lambda row: "" if row.method == "alone" else text(row)

    return table_of(
        title,
        rows,
        ("method", lambda row: row.method),
        ("step", lambda row: f"{row.ms:.1f} ms"),
        ("communicating", sends(lambda row: f"{row.communication_share:.1%}")),
        ("time / plain (95 %)", lambda row: str(row.over_plain) if row.over_plain else ""),
        ("less time", lambda row: f"{1 - row.over_plain.mean:.1%}" if row.over_plain else ""),
        ("sent per host", sends(lambda row: f"{row.bytes_sent_per_host / 1e6:.2f} MB")),
        ("fewer", lambda row: f"{plain / row.bytes_sent_per_host:.1f}x" if row.over_plain else ""),
    )
