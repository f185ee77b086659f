"""The workloads that are summed, the methods that sum, and the true sum.

A workload is a gradient for every rank. All ranks can look it up, so that each knows the true sum.
The methods are compared as a user would write each of them today:

========= =========================================================================================
method    description
========= =========================================================================================
dense     ``torch.distributed.all_reduce`` on gloo
fp16      torch's ``fp16_compress_hook``: sent as float16
powersgd  torch's ``powerSGD_hook`` with its defaults: rank 1, error feedback, warm start
topk      the largest 1 % by ``torch.topk``: int32 places and values all-gathered, added by rank
sketch    Laconic: multiples of 2^-24, summed as sketches of integers
laconic   Laconic, automatic: the fastest of its exact ways by what it measured
========= =========================================================================================

Both hooks of torch return means; whoever checks them multiplies.

A sum is exact if it has the same bits on all ranks and every entry is within a millionth of
``|x0| + |x1| + ...`` of the sum in float64. Rounding in float32 costs at most ``ranks - 1`` times
6e-8 of that in any order. So gloo's ring passes too; a rounded or missing entry does not.

Shape legend: ``N`` ranks, ``W`` words of the flat gradient.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from math import isqrt, prod
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor, nn

from benchmarks.reduction.models import Task
from laconic.config import Settings
from laconic.reduce import Method as Way
from laconic.reduce import Reducer

Floats = NDArray[np.float32]
Supports = Literal["identical", "independent"]
_RELATIVE = 1e-6
_RATE = 0.1
_STEP = 2.0**-24  # gradients of 100 on 8 ranks still fit int32

TOP = 0.01
"""Share of entries that topk sends."""


class Generated(Settings):
    """Normal numbers in random places, zeros elsewhere."""

    kind: Literal["generated"] = "generated"
    words: int = Field(1 << 24, ge=1)
    sparsity: float = Field(ge=0, le=1)
    """Share of zeros, to the word."""
    supports: Supports
    """Whether ranks have something in the same places, or each in its own."""

    @property
    def name(self) -> str:
        """Name of the workload."""
        return f"generated, {self.words:,} words"

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """Shapes nearly square, for methods that approximate matrices; a vector of the rest."""
        side = isqrt(self.words)
        rest = self.words - side * side
        return ((side, side), *([(rest,)] if rest else []))

    def gradient(self, rank: int) -> Floats:
        """Return what one rank has."""
        count = round((1 - self.sparsity) * self.words)
        places = np.random.default_rng([0, 0 if self.supports == "identical" else rank + 1])
        there = places.choice(self.words, count, replace=False, shuffle=False)
        x_W = np.zeros(self.words, np.float32)
        x_W[there] = np.random.default_rng([1, rank]).standard_normal(count, np.float32)
        return x_W


class Recorded(Settings):
    """Gradients of a model, from a file."""

    kind: Literal["recorded"] = "recorded"
    name: str
    file: Path
    """A row for every rank, float32 in numpy's format."""
    shapes: tuple[tuple[int, ...], ...]
    sparsity: float
    """Share of zeros on rank 0."""
    supports: Supports = "independent"

    def gradient(self, rank: int) -> Floats:
        """Return what one rank has."""
        return np.array(np.load(self.file, mmap_mode="r")[rank])


AnyWorkload = Annotated[Generated | Recorded, Field(discriminator="kind")]


def record(task: Task, ranks: int, folder: Path, steps: int = 3) -> Recorded:
    """Train all ranks in this process for some steps; write each rank's next gradient to a file.

    Every rank has batches of its own; what is recorded is what each of them would hand to an
    all-reduce.
    """
    torch.manual_seed(0)
    module = task.module()
    parameters = list(module.parameters())
    for step in range(steps):
        total = sum(_gradient(task, module, rank, step) for rank in range(ranks))
        torch.nn.utils.vector_to_parameters(
            torch.nn.utils.parameters_to_vector(parameters).detach() - _RATE / ranks * total, parameters
        )
    file = folder / f"{task.name}.npy"
    words = sum(parameter.numel() for parameter in parameters)
    gradients_NW = np.lib.format.open_memmap(file, mode="w+", dtype=np.float32, shape=(ranks, words))
    for rank in range(ranks):
        gradients_NW[rank] = _gradient(task, module, rank, steps).numpy()
    gradients_NW.flush()
    file.chmod(0o644)  # hosts of the lab read it
    return Recorded(
        name=task.name,
        file=file,
        shapes=tuple(tuple(parameter.shape) for parameter in parameters),
        sparsity=float(1 - np.count_nonzero(gradients_NW[0]) / words),
    )


def _gradient(task: Task, module: nn.Module, rank: int, step: int) -> Tensor:
    batch = task.batch_of(rank, step)
    module.zero_grad()
    task.loss(module(*batch.inputs), batch.target).backward()  # type: ignore[no-untyped-call]
    return torch.cat([p.grad.reshape(-1) for p in module.parameters() if p.grad is not None])


@dataclass(frozen=True, slots=True, eq=False)
class Truth:
    """Bounds of every entry of the sum."""

    low_W: Tensor
    high_W: Tensor

    @classmethod
    def of(cls, parts: Iterable[Floats]) -> Truth:
        """Sum what all ranks have."""
        total_W = size_W = torch.zeros((), dtype=torch.float64)
        for part_W in map(torch.from_numpy, parts):
            total_W, size_W = total_W + part_W, size_W + part_W.abs()
        return cls.around(total_W, size_W)

    @classmethod
    def around(cls, total_W: Tensor, size_W: Tensor) -> Truth:
        """Allow for rounding; both in float64, ``size_W`` being the sum of absolute values."""
        slack_W = _RELATIVE * size_W
        return cls((total_W - slack_W).float(), (total_W + slack_W).float())

    def allows(self, total_W: Tensor) -> bool:
        """Whether every entry is near enough; NaN never is."""
        return bool((total_W >= self.low_W).all()) and bool((total_W <= self.high_W).all())


@dataclass(frozen=True, slots=True)
class Setting:
    """What methods may keep from one sum to the next."""

    reducer: Reducer
    shapes: tuple[tuple[int, ...], ...]
    """Shapes of the parameters that the flat gradient consists of."""


@dataclass(frozen=True, slots=True)
class Summed:
    """A sum, or mean, of all ranks' gradients."""

    total: Tensor
    bytes_sent: int | None = None
    """Bytes that the method itself counts."""
    way: str | None = None
    """The way that an automatic method chose."""


Sum = Callable[[Tensor], Summed]
"""May overwrite what it is given."""


@dataclass(frozen=True, slots=True)
class SumMethod:
    """One method that sums."""

    make: Callable[[Setting], Sum]
    averages: bool = False


def _dense(_: Setting) -> Sum:
    def add(x: Tensor) -> Summed:
        dist.all_reduce(x)
        return Summed(x)

    return add


def _topk(_: Setting) -> Sum:
    def add(x: Tensor) -> Summed:
        places = x.abs().topk(max(1, round(TOP * x.numel())), sorted=False).indices
        own = (places.int(), x[places])
        heard = [[torch.empty_like(part) for _ in range(dist.get_world_size())] for part in own]
        for everyone, part in zip(heard, own, strict=True):
            dist.all_gather(everyone, part)
        x.zero_()
        for there, values in zip(*heard, strict=True):
            x.index_add_(0, there, values)
        return Summed(x)

    return add


def _fp16(setting: Setting) -> Sum:
    from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook

    return _hooked(fp16_compress_hook, None, setting)


def _powersgd(setting: Setting) -> Sum:
    from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState, powerSGD_hook

    state = PowerSGDState(None, start_powerSGD_iter=2)
    state.iter = 2  # it waits for DDP to rebuild its buckets; these stay as they are
    return _hooked(powerSGD_hook, state, setting)


def _hooked(hook: Callable[[Any, Any], Any], state: Any, setting: Setting) -> Sum:
    return lambda x: Summed(hook(state, _FlatBucket(x, setting.shapes)).wait())


@dataclass(frozen=True, slots=True)
class _FlatBucket:
    """All that torch's hooks ask of a bucket of DDP."""

    flat: Tensor
    shapes: tuple[tuple[int, ...], ...]

    def index(self) -> int:
        return 0

    def is_last(self) -> bool:
        return True

    def buffer(self) -> Tensor:
        return self.flat

    def gradients(self) -> list[Tensor]:
        parts = torch.split(self.flat, [prod(shape) for shape in self.shapes])
        return [part.view(shape) for part, shape in zip(parts, self.shapes, strict=True)]


def _ours(way: Way, step: float | None = None) -> Callable[[Setting], Sum]:
    def make(setting: Setting) -> Sum:
        def add(x: Tensor) -> Summed:
            report = setting.reducer.sum(x, way, step=step)
            return Summed(x, report.bytes_sent, report.method)

        return add

    return make


METHODS: dict[str, SumMethod] = {
    "dense": SumMethod(_dense),
    "fp16": SumMethod(_fp16, averages=True),
    "powersgd": SumMethod(_powersgd, averages=True),
    "topk": SumMethod(_topk),
    "sketch": SumMethod(_ours("sketch", _STEP)),
    "laconic": SumMethod(_ours("auto")),
}
