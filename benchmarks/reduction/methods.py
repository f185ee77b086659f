"""The ways to sum that are compared, each as a user would write it today.

========= ==============================================================================================
method    what it is
========= ==============================================================================================
dense     ``torch.distributed.all_reduce`` on gloo
fp16      torch's ``fp16_compress_hook``: float16 on the way
powersgd  torch's ``powerSGD_hook`` with its defaults: rank 1, error feedback, warm start
topk      the largest 1 % by ``torch.topk``, int32 places and values all-gathered, added in rank order
sketch    Laconic: multiples of 2^-24, summed as sketches of integers
laconic   Laconic, automatic: the fastest of its exact ways by what it measured
========= ==============================================================================================

Both hooks return means; whoever checks them multiplies.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from laconic.reduce import Method as Way
from laconic.reduce import Reducer

__all__ = ["METHODS", "Method", "Setting", "Summed"]

_STEP = 2.0**-24  # gradients of 100 on 8 ranks still fit int32

TOP = 0.01
"""Share of entries that topk sends."""


@dataclass(frozen=True, slots=True)
class Setting:
    """What a method may keep from one sum to the next."""

    reducer: Reducer
    shapes: tuple[tuple[int, ...], ...]
    """Of the parameters that the flat gradient consists of."""


@dataclass(frozen=True, slots=True)
class Summed:
    """A sum, or mean, of all ranks' gradients."""

    total: Tensor
    bytes_sent: int | None = None
    """What the method itself says."""
    way: str | None = None
    """What it chose."""


Sum = Callable[[Tensor], Summed]
"""May overwrite what it is given."""


@dataclass(frozen=True, slots=True)
class Method:
    """One way to sum."""

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
    return lambda x: Summed(hook(state, _Bucket(x, setting.shapes)).wait())


@dataclass(frozen=True, slots=True)
class _Bucket:
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


def _ours(way: Way) -> Callable[[Setting], Sum]:
    def make(setting: Setting) -> Sum:
        def add(x: Tensor) -> Summed:
            report = setting.reducer.sum(x, way)
            return Summed(x, report.bytes_sent, report.method)

        return add

    return make


def _sketch(setting: Setting) -> Sum:
    def add(x: Tensor) -> Summed:
        report = setting.reducer.sum(x, "sketch", step=_STEP)
        return Summed(x, report.bytes_sent, report.method)

    return add


METHODS: dict[str, Method] = {
    "dense": Method(_dense),
    "fp16": Method(_fp16, averages=True),
    "powersgd": Method(_powersgd, averages=True),
    "topk": Method(_topk),
    "sketch": Method(_sketch),
    "laconic": Method(_ours("auto")),
}
