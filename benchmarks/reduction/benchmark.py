"""``python -m benchmarks reduce``: sums over hosts of the lab, and training under DDP.

One host per core on links of the asked rate, where times count; then more hosts than that, for bytes and exactness; and
loopback, for what the hook costs where it cannot help.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.reduction.jobs import Answer, Iterations, Sums
from benchmarks.reduction.models import AnyTask
from benchmarks.reduction.plan import Plan
from benchmarks.reduction.recorded import record
from benchmarks.reduction.row import Row, rows_of
from benchmarks.reduction.workload import AnyWorkload, Generated
from benchmarks.worker_pool import WorkerPool
from laconic.errors import ConfigError

__all__ = ["parts_of", "run_reduction_benchmark"]

_WORKER = "benchmarks.reduction.worker"
_LOOPBACK_HOSTS = 2
_LOOPBACK_ROUNDS, _LOOPBACK_STEPS = 8, 4  # times as many: differences are small
Say = Callable[[str], None]


def parts_of(plan: Plan, hosts: int) -> int:
    """Return how often ``run_reduction_benchmark`` says what it does."""
    sums = len(_generated(plan)) + len(plan.recorded)
    return len(plan.recorded) + sums * len(_crews(plan, hosts)) + 2


def run_reduction_benchmark(
    plan: Plan, *, hosts: int, rate_mbit: float, say: Say, lab: bool = True
) -> list[Row]:
    """Measure everything; ``lab=False``: all on loopback, whose times say nothing about links."""
    if hosts < 2:
        raise ConfigError(f"--hosts: expected at least 2, got {hosts}; one has nobody to send to")
    crews = _crews(plan, hosts)
    limit = rate_mbit if lab else None
    rows: list[Row] = []
    with TemporaryDirectory(prefix="laconic-gradients-") as scratch:
        folder = Path(scratch)
        folder.chmod(0o755)
        workloads: list[AnyWorkload] = list(_generated(plan))
        for task in plan.recorded:
            say(f"training {task.name} to record its gradients")
            workloads.append(record(task, max(crew for crew, _ in crews), folder))
        for count, repeats in crews:
            with WorkerPool(_WORKER, count, rate_mbit=limit) as crew:
                rows += _sum(crew, workloads, plan.methods, repeats, limit, say)
                if count == hosts:
                    say(f"training {plan.sparse_model.name} under DDP")
                    rows += _iterate(crew, plan.sparse_model, plan.rounds, plan.steps, limit)
    with WorkerPool(_WORKER, _LOOPBACK_HOSTS) as crew:
        say(f"training {plan.dense_model.name} under DDP on loopback")
        rows += _iterate(
            crew, plan.dense_model, _LOOPBACK_ROUNDS * plan.rounds, _LOOPBACK_STEPS * plan.steps, None
        )
    return rows


def _crews(plan: Plan, hosts: int) -> list[tuple[int, int]]:
    """Hosts and repeats of every crew."""
    many = [(plan.many_hosts, plan.many_repeats)] if plan.many_hosts > hosts else []
    return [(hosts, plan.repeats), *many]


def _generated(plan: Plan) -> list[Generated]:
    return [
        Generated(words=plan.words, sparsity=sparsity, supports=supports)
        for sparsity in plan.sparsities
        for supports in ("identical", "independent")
    ]


def _sum(
    crew: WorkerPool,
    workloads: Sequence[AnyWorkload],
    methods: tuple[str, ...],
    repeats: int,
    rate_mbit: float | None,
    say: Say,
) -> list[Row]:
    rows: list[Row] = []
    for workload in workloads:
        say(f"{crew.ranks} hosts: {workload.name}, {workload.sparsity:.0%} zeros, {workload.supports}")
        job = Sums(workload=workload, methods=methods, repeats=repeats)
        rows += rows_of(
            crew.ask(job, Answer),
            workload=workload.name,
            sparsity=workload.sparsity,
            supports=workload.supports,
            hosts=crew.ranks,
            rate_mbit=rate_mbit,
        )
    return rows


def _iterate(crew: WorkerPool, task: AnyTask, rounds: int, steps: int, rate_mbit: float | None) -> list[Row]:
    job = Iterations(task=task, rounds=rounds, steps=steps)
    return rows_of(
        crew.ask(job, Answer),
        workload=f"{task.name}, a step under DDP",
        supports="independent",
        hosts=crew.ranks,
        rate_mbit=rate_mbit,
    )
