"""``python -m benchmarks reduce``: sums over hosts of the lab, and training under DDP.

Times are of one host per core on links of the given bandwidth. More hosts than cores give bytes and
exactness. Loopback shows what the hook costs where it cannot help.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table

from benchmarks.harness import Interval, grouped, link_text, megabytes, paired_ratios, table_of
from benchmarks.reduction.models import BOOK_CROSSING, AnyTask, Dlrm, Encoder, Lstm, Mlp, Ncf
from benchmarks.reduction.sums import METHODS, AnyWorkload, Generated, Supports, record
from benchmarks.reduction.worker import Iterations, SumAnswer, Sums
from benchmarks.workers import WorkerPool
from laconic.config import Settings
from laconic.errors import CommError, ConfigError

_WORKER = "benchmarks.reduction.worker"
_LOOPBACK_HOSTS = 2
_LOOPBACK_ROUNDS, _LOOPBACK_STEPS = 8, 4  # times as many: differences are small
Say = Callable[[str], None]


class SumPlan(Settings):
    """The workloads, methods and repeats of the benchmark."""

    methods: tuple[str, ...] = tuple(METHODS)
    words: int = 1 << 24
    sparsities: tuple[float, ...] = (0.9, 0.95, 0.99)
    repeats: int = 5
    recorded: tuple[AnyTask, ...]
    """Models whose gradients are recorded and summed."""
    many_hosts: int = 4
    """Number of hosts for bytes and correctness: cores need not suffice for as many."""
    many_repeats: int = 1
    sparse_model: AnyTask
    """Trained under DDP on the links of the lab."""
    dense_model: AnyTask
    """Trained under DDP on loopback, where compressing does not pay."""
    rounds: int = 8
    steps: int = 3
    """Steps of each round on the links; on loopback there are more of both."""

    def generated(self) -> list[Generated]:
        """Return the workloads that are made from random numbers."""
        return [
            Generated(words=self.words, sparsity=sparsity, supports=supports)
            for sparsity in self.sparsities
            for supports in ("identical", "independent")
        ]

    def pools(self, hosts: int) -> list[tuple[int, int]]:
        """Return hosts and repeats of every pool of workers."""
        many = [(self.many_hosts, self.many_repeats)] if self.many_hosts > hosts else []
        return [(hosts, self.repeats), *many]


def usual_plan(data: Path | None, *, full: bool, words: int = 1 << 24) -> SumPlan:
    """Return what ``python -m benchmarks reduce`` measures; ``full`` is what is published."""
    if data is not None and not (data / BOOK_CROSSING).exists():
        raise ConfigError(f"--data: no {BOOK_CROSSING} in {str(data)!r}; leave it out for generated ids")
    ncf = Ncf(data=None if data is None else data.resolve())
    return SumPlan(
        words=words,
        repeats=15 if full else 5,
        recorded=(Dlrm(), ncf, Lstm(), Encoder()),
        many_repeats=3 if full else 1,
        sparse_model=ncf,
        dense_model=Mlp(),
        rounds=16 if full else 8,
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class SumRow:
    """What was measured of one method on one workload."""

    method: str
    workload: str
    sparsity: float
    """Share of zeros on rank 0."""
    supports: Supports
    hosts: int
    rate_mbit: float | None
    """Rate of every link, in each direction; None: loopback, not limited."""
    ms: float
    """Median of the slowest rank's sums or steps, in milliseconds. Hosts may share cores."""
    bytes_sent_per_host: float
    """Bytes that a host sends by its interface's counter, headers included."""
    exact: bool
    way: str | None
    """The way that an automatic method chose."""
    over_dense: Interval | None
    """Time over that of ``dense``, paired by repeat: mean and 95 % interval."""


def run_reduction_benchmark(plan: SumPlan, *, hosts: int, rate_mbit: float | None, say: Say) -> list[SumRow]:
    """Measure everything; without ``rate_mbit`` on loopback, whose times mean little."""
    if hosts < 2:
        raise ConfigError(f"--hosts: expected at least 2, got {hosts}; one has nobody to send to")
    rows: list[SumRow] = []
    with TemporaryDirectory(prefix="laconic-gradients-") as scratch:
        folder = Path(scratch)
        folder.chmod(0o755)
        workloads: list[AnyWorkload] = list(plan.generated())
        for task in plan.recorded:
            say(f"training {task.name} to record its gradients")
            workloads.append(record(task, max(count for count, _ in plan.pools(hosts)), folder))
        for count, repeats in plan.pools(hosts):
            links = {"hosts": count, "rate_mbit": rate_mbit}
            with WorkerPool(_WORKER, count, rate_mbit=rate_mbit) as pool:
                for workload in workloads:
                    say(f"{count} hosts: {workload.name}, {workload.sparsity:.0%} zeros, {workload.supports}")
                    job = Sums(workload=workload, methods=plan.methods, repeats=repeats)
                    what = {name: getattr(workload, name) for name in ("sparsity", "supports")}
                    rows += rows_of(pool.ask(job, SumAnswer), workload=workload.name, **what, **links)
                if count == hosts:
                    say(f"training {plan.sparse_model.name} under DDP")
                    steps = Iterations(task=plan.sparse_model, rounds=plan.rounds, steps=plan.steps)
                    rows += _step_rows(pool, steps, rate_mbit)
    with WorkerPool(_WORKER, _LOOPBACK_HOSTS) as pool:
        say(f"training {plan.dense_model.name} under DDP on loopback")
        rounds, each = _LOOPBACK_ROUNDS * plan.rounds, _LOOPBACK_STEPS * plan.steps
        rows += _step_rows(pool, Iterations(task=plan.dense_model, rounds=rounds, steps=each), None)
    return rows


def _step_rows(pool: WorkerPool, job: Iterations, rate_mbit: float | None) -> list[SumRow]:
    return rows_of(
        pool.ask(job, SumAnswer),
        workload=f"{job.task.name}, a step under DDP",
        supports="independent",
        hosts=pool.ranks,
        rate_mbit=rate_mbit,
    )


def rows_of(answers: Sequence[SumAnswer], **setting: Any) -> list[SumRow]:
    """Make rows of one workload; ``setting`` has its other fields, but maybe no ``sparsity``."""
    dense = next((answer for answer in answers if answer.method == "dense"), None)
    rows = []
    for answer in answers:
        if answer.bytes_claimed is not None and answer.bytes_claimed > answer.bytes_sent:
            raise CommError(
                f"bench: {answer.method} says that it sent {answer.bytes_claimed:.0f} bytes, but interfaces "
                f"counted {answer.bytes_sent:.0f}; ranks must talk over the interface GLOO_SOCKET_IFNAME names"
            )
        rows.append(
            SumRow(
                method=answer.method,
                ms=answer.ms,
                bytes_sent_per_host=answer.bytes_sent,
                exact=answer.exact,
                way=answer.way,
                over_dense=_over(answer, dense),
                **{"sparsity": answer.sparsity, **setting},
            )
        )
    return rows


def _over(answer: SumAnswer, dense: SumAnswer | None) -> Interval | None:
    return None if dense is None or dense is answer else paired_ratios(answer.round_ms, dense.round_ms)


def render(rows: Sequence[SumRow]) -> RenderableType:
    """Make a table for each workload; *at least* is the end of the 95 % interval."""
    return Group(*(_table(title, here) for title, here in grouped(rows, _title).items()))


def _title(row: SumRow) -> str:
    link = link_text(row.rate_mbit)
    return f"{row.workload}: {row.sparsity:.1%} zeros, {row.supports} supports; {row.hosts} hosts, {link}"


def _table(title: str, rows: list[SumRow]) -> Table:
    dense = next((row for row in rows if row.method == "dense"), None)

    def fewer(row: SumRow) -> str:
        return (
            f"{dense.bytes_sent_per_host / row.bytes_sent_per_host:.1f}x" if dense not in (None, row) else ""
        )

    return table_of(
        title,
        rows,
        (
            "method",
            lambda row: f"{row.method} ({row.way})" if row.way not in (None, row.method) else row.method,
        ),
        ("time", lambda row: f"{row.ms:.1f} ms"),
        ("time / dense (95 %)", lambda row: "" if row.over_dense is None else str(row.over_dense)),
        ("faster (at least)", _faster),
        ("sent per host", lambda row: megabytes(row.bytes_sent_per_host)),
        ("fewer", fewer),
        ("exact", lambda row: "yes" if row.exact else "no"),
    )


def _faster(row: SumRow) -> str:
    if row.over_dense is None:
        return ""
    mean, _, high = row.over_dense
    return f"{1 / mean:.2f}x" + ("" if math.isnan(high) else f" ({1 / high:.2f}x)")
