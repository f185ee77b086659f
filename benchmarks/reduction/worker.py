"""One rank of the all-reduce benchmark: it sums workloads, and trains models under DDP.

``WorkerPool`` starts it as ``python -m benchmarks.reduction.worker JOBS ANSWERS``. A workload is
summed by every method in turn, every sum on a fresh copy, and every result is checked.

Under DDP the same model is trained twice, plain and with Laconic's hook. Both start from the same
weights and take the same batches. Both have gradients that are views of DDP's buckets, and SGD in
one fused pass without momentum. So only the all-reduce differs. Exact means that gradients of the
first step are (``Truth``), and that all ranks have the same weights after the last, bit for bit.
"""

from __future__ import annotations

import statistics
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from itertools import count

import torch
import torch.distributed as dist
from pydantic import Field
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

from benchmarks.reduction.models import AnyTask, Task, TaskBatch
from benchmarks.reduction.sums import METHODS, AnyWorkload, Setting, Sum, Summed, Truth
from benchmarks.workers import MeasuredCalls, MethodFigures, fingerprint, measure, serve
from laconic.config import Settings
from laconic.demo.measure import rotated
from laconic.errors import ConfigError
from laconic.integrations.ddp import Compressor, register_ddp
from laconic.reduce import Exact, Reducer
from laconic.train.ranks import Ranks, process_group

_RATE = 0.01
_BATCHES = 8  # made before the clock starts, used in turn


class Sums(Settings):
    """Sum a workload by every method, in turns."""

    workload: AnyWorkload
    methods: tuple[str, ...]
    repeats: int = Field(ge=1)
    """Sums by each method; one more before them is checked and not timed."""


class Iterations(Settings):
    """Train a model under DDP, plain (``dense``) and with Laconic's hook, in turns."""

    task: AnyTask
    rounds: int = Field(ge=1)
    steps: int = Field(ge=1)
    """Steps of each in each round; one more before them is not timed."""


class SumAnswer(MethodFigures):
    """Figures of one method."""

    bytes_claimed: float | None = None
    """Bytes that the method itself counts, without headers and barriers."""
    exact: bool
    """Whether every sum is exact on every rank (``Truth``)."""
    way: str | None = None
    """The way that an automatic method chose."""
    sparsity: float | None = None
    """Share of zeros in rank 0's gradient, where only the worker knows it."""


@dataclass(slots=True)
class _Sums:
    """Figures of one method so far."""

    add: Sum
    averages: bool
    measured: list[MeasuredCalls] = field(default_factory=list)
    claimed: list[int] = field(default_factory=list)
    exact: bool = True
    way: str | None = None

    def take_turn(self, gradient: Tensor, ranks: Ranks, truth: Truth) -> None:
        results: list[Summed] = []
        self.measured.append(measure(ranks, lambda: results.append(self.add(gradient))))
        summed = results[0]
        total = summed.total * ranks.count if self.averages else summed.total
        seen = ranks.gather((truth.allows(total), fingerprint(total), summed.bytes_sent))
        self.exact &= all(allowed for allowed, _, _ in seen) and len({mark for _, mark, _ in seen}) == 1
        self.claimed = [claimed for _, _, claimed in seen if claimed is not None]
        self.way = summed.way


def _sum_by_turns(ranks: Ranks, reducer: Reducer, job: Sums) -> list[SumAnswer]:
    unknown = [name for name in job.methods if name not in METHODS]
    if unknown:
        raise ConfigError(f"bench: no such method {unknown[0]!r} (known: {', '.join(METHODS)})")
    own = torch.from_numpy(job.workload.gradient(ranks.rank))
    truth = Truth.of(job.workload.gradient(rank) for rank in range(ranks.count))
    setting = Setting(reducer, job.workload.shapes)
    sums = {name: _Sums(METHODS[name].make(setting), METHODS[name].averages) for name in job.methods}
    copy = torch.empty_like(own)
    for name in rotated(job.methods, 1 + job.repeats):
        copy.copy_(own)
        sums[name].take_turn(copy, ranks, truth)
    return [
        SumAnswer.of(
            name,
            found.measured[1:],  # the first measures links and fills caches
            bytes_claimed=statistics.fmean(found.claimed) if found.claimed else None,
            exact=found.exact,
            way=found.way,
        )
        for name, found in sums.items()
    ]


class _Trained:
    """One copy of the model, and what was measured of it."""

    def __init__(self, task: Task, batches: list[TaskBatch], *, ours: bool) -> None:
        torch.manual_seed(0)
        self._task, self._batches = task, batches
        self._model = DistributedDataParallel(task.module(), gradient_as_bucket_view=True)
        self.compressor: Compressor | None = register_ddp(self._model, Exact()) if ours else None
        self._optimizer = torch.optim.SGD(self._model.parameters(), lr=_RATE, fused=True)
        self._steps = count()
        self.measured: list[MeasuredCalls] = []
        self.exact = True

    def step(self) -> None:
        """Train on the next batch."""
        self._backward(self._batches[next(self._steps) % len(self._batches)])
        self._optimizer.step()
        self._optimizer.zero_grad()

    def own_gradient(self) -> Tensor:
        """Return what this rank alone has, for the first batch."""
        with self._model.no_sync():
            self._backward(self._batches[0])
        return self._take_gradient()

    def mean_gradient(self) -> Tensor:
        """Return what all ranks have together, for the first batch."""
        self._backward(self._batches[0])
        return self._take_gradient()

    def answer(self, name: str, sparsity: float, ranks: Ranks) -> SumAnswer:
        """Put figures of all ranks together."""
        weights = fingerprint(torch.cat([p.detach().reshape(-1) for p in self._model.parameters()]))
        seen = ranks.gather((self.exact, weights))
        hook = self.compressor
        return SumAnswer.of(
            name,
            self.measured,
            exact=all(exact for exact, _ in seen) and len({mark for _, mark in seen}) == 1,
            way=None if hook is None else f"{hook.bypassed / hook.buckets:.0%} bypassed",
            sparsity=sparsity,
        )

    def _backward(self, batch: TaskBatch) -> None:
        self._task.loss(self._model(*batch.inputs), batch.target).backward()  # type: ignore[no-untyped-call]

    def _take_gradient(self) -> Tensor:
        flat = torch.cat([p.grad.reshape(-1) for p in self._model.parameters() if p.grad is not None])
        self._optimizer.zero_grad()
        return flat


def _iterate_by_turns(ranks: Ranks, job: Iterations) -> list[SumAnswer]:
    batches = [job.task.batch_of(ranks.rank, step) for step in range(_BATCHES)]
    both = {name: _Trained(job.task, batches, ours=name == "laconic") for name in ("dense", "laconic")}
    own = both["dense"].own_gradient()
    truth = _mean_of(own, ranks)
    for trained in both.values():
        trained.exact = truth.allows(trained.mean_gradient())
    sparsity = ranks.gather(1 - int(own.count_nonzero()) / max(own.numel(), 1))[0]
    for trained in rotated(list(both.values()), job.rounds):
        trained.measured.append(measure(ranks, trained.step, job.steps, skip=1))
    answers = [trained.answer(name, sparsity, ranks) for name, trained in both.items()]
    for trained in both.values():
        if trained.compressor is not None:
            trained.compressor.close()
    return answers


def _mean_of(own: Tensor, ranks: Ranks) -> Truth:
    total, size = own.double() / ranks.count, own.abs().double() / ranks.count
    for part in (total, size):
        dist.all_reduce(part)
    return Truth.around(total, size)


if __name__ == "__main__":
    with process_group(timeout_s=600) as ranks, closing(Reducer()) as reducer:
        sums, iterations = partial(_sum_by_turns, ranks, reducer), partial(_iterate_by_turns, ranks)
        serve(ranks, {Sums: sums, Iterations: iterations})
