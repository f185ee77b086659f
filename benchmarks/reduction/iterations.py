"""A rank's part in training under DDP: the same model twice, plain and with Laconic's hook, in turns.

Both start from the same weights, take the same batches, have gradients that are views of DDP's buckets, and SGD
in one fused pass without momentum: what differs is the all-reduce. Exact means: gradients of the first step are
(``truth``), and after the last all ranks have the same weights, bit for bit.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field
from itertools import count

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

from benchmarks.reduction.jobs import Answer, Iterations
from benchmarks.reduction.models.task import Batch, Task
from benchmarks.reduction.truth import Truth
from benchmarks.worker import Measured, fingerprint, measure
from laconic.integrations.ddp import Compressor, register_ddp
from laconic.train.ranks import Ranks

__all__ = ["iterate_by_turns"]

_RATE = 0.01
_BATCHES = 8  # made before the clock starts, used in turn


class _Trained:
    """One copy of the model."""

    def __init__(self, task: Task, batches: list[Batch], *, ours: bool) -> None:
        torch.manual_seed(0)
        self._task, self._batches = task, batches
        self._model = DistributedDataParallel(task.module(), gradient_as_bucket_view=True)
        self.compressor: Compressor | None = register_ddp(self._model) if ours else None
        self._optimizer = torch.optim.SGD(self._model.parameters(), lr=_RATE, fused=True)
        self._steps = count()

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

    def weights(self) -> int:
        """Return a number that differs where weights do."""
        return fingerprint(torch.cat([p.detach().reshape(-1) for p in self._model.parameters()]))

    def _backward(self, batch: Batch) -> None:
        self._task.loss(self._model(*batch.inputs), batch.target).backward()  # type: ignore[no-untyped-call]

    def _take_gradient(self) -> Tensor:
        flat = torch.cat([p.grad.reshape(-1) for p in self._model.parameters() if p.grad is not None])
        self._optimizer.zero_grad()
        return flat


@dataclass(slots=True)
class _Figures:
    model: _Trained
    exact: bool = True
    measured: list[Measured] = field(default_factory=list)


def iterate_by_turns(ranks: Ranks, job: Iterations) -> list[Answer]:
    """Train; who begins a round alternates."""
    batches = [job.task.batch_of(ranks.rank, step) for step in range(_BATCHES)]
    both = {
        name: _Figures(_Trained(job.task, batches, ours=name == "laconic")) for name in ("dense", "laconic")
    }
    own = both["dense"].model.own_gradient()
    truth = _mean_of(own, ranks)
    for figures in both.values():
        figures.exact = truth.allows(figures.model.mean_gradient())
    sparsity = ranks.gather(1 - int(own.count_nonzero()) / max(own.numel(), 1))[0]
    for turn in range(job.rounds):
        for k in range(2):
            figures = list(both.values())[(turn + k) % 2]
            figures.measured.append(measure(ranks, figures.model.step, job.steps, skip=1))
    answers = [_answer(name, figures, sparsity, ranks) for name, figures in both.items()]
    for figures in both.values():
        if figures.model.compressor is not None:
            figures.model.compressor.close()
    return answers


def _mean_of(own: Tensor, ranks: Ranks) -> Truth:
    total, size = own.double() / ranks.count, own.abs().double() / ranks.count
    for part in (total, size):
        dist.all_reduce(part)
    return Truth.around(total, size)


def _answer(name: str, figures: _Figures, sparsity: float, ranks: Ranks) -> Answer:
    seen = ranks.gather((figures.exact, figures.model.weights()))
    compressor = figures.model.compressor
    return Answer(
        method=name,
        round_ms=tuple(measured.times_ms for measured in figures.measured),
        bytes_sent=statistics.median(measured.bytes_sent for measured in figures.measured),
        exact=all(exact for exact, _ in seen) and len({weights for _, weights in seen}) == 1,
        way=None if compressor is None else f"{compressor.bypassed / compressor.buckets:.0%} bypassed",
        sparsity=sparsity,
    )
