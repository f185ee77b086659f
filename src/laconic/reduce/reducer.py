"""Sums over all ranks, by the way that takes least."""

from __future__ import annotations

import zlib
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from laconic.codecs.batch import BlockCodec
from laconic.cost.link import Link
from laconic.cost.measure import measure_kernels
from laconic.cost.reduce_time import Addends, Choice, KernelSpeeds, choose, reduce_s
from laconic.errors import ConfigError
from laconic.exchange.ranks.link_probe import probe_link
from laconic.exchange.ranks.transport import Channel
from laconic.exchange.ranks.world import GroupWorld, World
from laconic.reduce.ways.coded import Levels, sum_coded
from laconic.reduce.ways.dense import sum_dense
from laconic.reduce.ways.large_first import LargeFirst, LayerMemory, sum_large
from laconic.reduce.ways.rounded import Adder, sum_rounded
from laconic.reduce.ways.sketched import sum_sketched, to_codes
from laconic.reduce.ways.sparse import UNITS, Fullness, sample_fullness, sum_by_owners, sum_gathered

__all__ = ["Method", "Reducer", "Report", "check_sum"]


Values = NDArray[Any]
Method = Literal["auto", "dense", "gather", "owners", "sketch"]
_TYPES = (torch.float32, torch.float64, torch.int32, torch.int64)
_SMALL = 4096  # words; looking costs more than sending them


@dataclass(frozen=True, slots=True)
class Report:
    """What a sum did."""

    method: str
    """The way that was taken."""
    unit: int
    """Number of neighboring words that stand or fall together."""
    bytes_sent: int
    """Bytes that this rank sent."""
    stalls: int = 0
    """Number of sketches that did not peel; after 2 the sum was made by owners."""


class Reducer:
    """A channel on which tensors are summed one after the other, alike on every rank."""

    def __init__(self, world: World | None = None, name: str = "all-reduce") -> None:
        self.channel = Channel((world or GroupWorld()).transport(name))
        self._speeds: KernelSpeeds | None = None
        self._link: Link | None = None

    def accepts(self, tensor: Tensor) -> bool:
        """Whether a tensor is of a type that kernels can sum."""
        return _is_summable(tensor)

    def sum(self, tensor: Tensor, method: Method = "auto", *, step: float | None = None) -> Report:
        """Sum a tensor over all ranks, in place.

        Integers are what any all-reduce makes of them. Floats are ``0 + x0 + x1 + ...`` in rank
        order, the same bits on every rank and by every method. With ``step``, floats are rounded to
        multiples of it first, and the multiples summed as integers, as a sketch needs.
        """
        check_sum(tensor, method, step)
        flat = tensor.detach().reshape(-1)  # a copy where memory is not contiguous
        flat = flat if flat.is_contiguous() else flat.contiguous()
        x: Values = flat.numpy()
        before = self.channel.bytes_sent
        choice, stalls = Choice(method), 0
        if method == "sketch":
            stalls = self._sum_sketched(x, step)
        else:
            choice = self.choose(x) if method == "auto" else Choice(method, self._unit(x, method))
            self.sum_as(x, choice)
        if flat.data_ptr() != tensor.data_ptr():
            tensor.detach().copy_(flat.view(tensor.shape))
        return Report(choice.method, choice.unit, self.channel.bytes_sent - before, stalls)

    def sum_as(self, x: Values, choice: Choice) -> None:
        """Sum in the way that all ranks agreed on."""
        self._begin(choice.method, x)
        if self.channel.ranks == 1:
            np.add(x, x.dtype.type(0), out=x)
        elif choice.method == "dense":
            self.channel.announce_to_all()
            sum_dense(self.channel, x)
        else:
            way = {"gather": sum_gathered, "owners": sum_by_owners}[choice.method]
            way(self.channel, x, choice.unit)

    def sum_large(self, gradient: NDArray[np.float32], memory: LayerMemory, how: LargeFirst) -> int:
        """Sum what ranks send of their gradients, and keep the rest.

        Returns the number of entries that this rank sent.
        """
        self._begin("large", gradient)
        return sum_large(self.channel, gradient, memory, how)

    def sum_coded(
        self, x: NDArray[np.float32], layers: NDArray[np.int64], codec: BlockCodec | Levels, step: int
    ) -> None:
        """Sum gradients that travel coded, each layer a block."""
        self._begin("coded", x)
        sum_coded(self.channel, x, layers, codec, step)

    def sum_rounded(self, x: NDArray[np.float32], network: Adder | None = None) -> None:
        """Sum gradients as multiples of a shared step; ranks add them, or a network does."""
        self._begin("rounded", x)
        if self.channel.ranks > 1:
            sum_rounded(self.channel, x, network)

    def choose(self, x: Values) -> Choice:
        """Look how full the tensors of all ranks are, and take the way that will be fastest."""
        if self.channel.ranks == 1 or len(x) <= _SMALL:
            return Choice("dense")
        link, speeds = self.measure()
        self._begin("look", x)
        fullness = sample_fullness(self.channel, x)
        full_U = zip(UNITS, fullness.ranks, fullness.union, strict=True)
        return choose(Addends(len(x), self.channel.ranks, x.itemsize), full_U, link, speeds)

    def pays(self, words: int, share: float) -> Choice:
        """Decide whether sending this share of a gradient, coded, is faster than all of it."""
        if self.channel.ranks == 1:
            return Choice("dense")
        link, speeds = self.measure()
        full, some = Addends(words, self.channel.ranks), Addends(words, self.channel.ranks, own=share)
        dense, coded = reduce_s("dense", full, link, speeds), reduce_s("gather", some, link, speeds)
        return Choice("coded", 1, coded) if coded < dense else Choice("dense", 1, dense)

    def forget(self) -> None:
        """Measure again when it matters next: the link may have changed; every rank alike."""
        self._link = self._speeds = None

    def adopt(self, link: Link, speeds: KernelSpeeds) -> None:
        """Count on what another reducer of the same ranks measured."""
        self._link, self._speeds = link, speeds

    def close(self) -> None:
        """Leave the channel; again, or after all process groups were destroyed, it does nothing."""
        with suppress(ValueError):  # torch says so of a group that was destroyed
            self.channel.close()

    def _sum_sketched(self, x: Values, step: float | None) -> int:
        self._begin(f"sketch {step}", x)
        if step is None:
            return 0 if self.channel.ranks == 1 else sum_sketched(self.channel, x)
        codes = to_codes(self.channel, x, step)
        stalls = 0 if self.channel.ranks == 1 else sum_sketched(self.channel, codes)
        np.multiply(codes, x.dtype.type(step), out=x)
        return stalls

    def _begin(self, what: str, x: Values) -> None:
        self.channel.begin(zlib.crc32(f"{what} {x.dtype} {len(x)}".encode()))

    def _unit(self, x: Values, method: str) -> int:
        """Words that stand or fall together where the method is forced: the fewest bytes."""
        if method == "dense" or self.channel.ranks == 1 or len(x) <= _SMALL:
            return 1
        self._begin(f"look for {method}", x)
        return _smallest(sample_fullness(self.channel, x))

    def measure(self) -> tuple[Link, KernelSpeeds]:
        """Measure, once, what all ranks can count on."""
        if self._link is None or self._speeds is None:
            before = self.channel.bytes_sent
            link, speeds = probe_link(self.channel.transport), measure_kernels()
            self.channel.count(before - self.channel.bytes_sent)
            own = np.array(
                [link.latency_s, 1 / link.bytes_per_s, 1 / speeds.read, 1 / speeds.move, 1 / speeds.add]
            )
            heard = np.empty((self.channel.ranks, len(own)))
            self.channel.begin(0)
            self.channel.announce_to_all(messages=[self.channel.to_all(own)])
            self.channel.receive(heard.reshape(-1), np.full(self.channel.ranks, len(own)))
            worst = heard.max(axis=0).tolist()
            self._link = Link(worst[0], 1 / worst[1])
            self._speeds = KernelSpeeds(1 / worst[2], 1 / worst[3], 1 / worst[4])
        return self._link, self._speeds


def _smallest(fullness: Fullness) -> int:
    """Find the unit whose words and index take least; an index entry is about ten bits."""
    costs = [share * (1 + 10 / (32 * unit)) for unit, share in zip(UNITS, fullness.ranks, strict=True)]
    return UNITS[int(np.argmin(costs))]


def check_sum(tensor: Tensor, method: str, step: float | None) -> None:
    """Refuse what no rank can sum, before anything travels."""
    known = get_args(Method)
    if method not in known:
        raise ConfigError(f"all-reduce: no such method {method!r} (known: {', '.join(known)})")
    if tensor.layout is not torch.strided:
        raise ConfigError(
            f"all-reduce: expected a dense tensor, got one of {tensor.layout}; sum tensor.to_dense(), or its values"
        )
    if not _is_summable(tensor):
        raise ConfigError(
            f"all-reduce: expected float32, float64, int32 or int64 on the CPU, got {tensor.dtype} on "
            f"{tensor.device}; convert it first"
        )
    if _overlaps_itself(tensor):
        raise ConfigError(
            f"all-reduce: expected memory of its own for every entry, got shape {tuple(tensor.shape)} with strides "
            f"{tensor.stride()}; sum tensor.contiguous()"
        )
    if step is not None and not tensor.is_floating_point():
        raise ConfigError(
            f"all-reduce: step: expected none for {tensor.dtype}, which is summed as it is, got {step!r}; leave it out"
        )
    if tensor.is_floating_point() and (method == "sketch") != (step is not None):
        raise ConfigError(
            "all-reduce: a sketch adds integers, so floats need step=, the rounding that all ranks share, "
            f"and no other method takes one; got method={method!r} and step={step!r}"
        )
    if step is not None and not 0 < step < float("inf"):
        raise ConfigError(f"all-reduce: step: expected a finite number above 0, got {step!r}")


def _is_summable(tensor: Tensor) -> bool:
    return tensor.dtype in _TYPES and tensor.device.type == "cpu"


def _overlaps_itself(tensor: Tensor) -> bool:
    """Whether entries share memory, as in an expanded tensor: a sum has no place to go there."""
    reach = 0  # of the dimensions whose strides are shorter
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size > 1 and stride <= reach:
            return tensor.numel() > 0
        reach += stride * (size - 1)
    return False
