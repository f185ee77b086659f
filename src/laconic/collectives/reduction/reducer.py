"""Sums over all ranks, by the way that takes least."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from laconic.collectives.link_probe import probe_link
from laconic.collectives.reduction.choice import Choice, Speeds, choose
from laconic.collectives.reduction.dense import sum_dense
from laconic.collectives.reduction.parcels import Parcels
from laconic.collectives.reduction.sample import UNITS, Fullness, sample_fullness
from laconic.collectives.reduction.sparse import sum_by_owners, sum_gathered, sum_union
from laconic.collectives.reduction.speeds import measure_speeds
from laconic.collectives.world import Joined, World
from laconic.cost import Link
from laconic.errors import ConfigError

__all__ = ["Method", "Reducer", "Report"]

Method = Literal["auto", "dense", "gather", "owners", "union"]
_TYPES = (torch.float32, torch.float64, torch.int32, torch.int64)
_SMALL = 4096  # words; looking costs more than sending them


@dataclass(frozen=True, slots=True)
class Report:
    """What a sum did."""

    method: str
    unit: int
    bytes_sent: int
    """By this rank."""


class Reducer:
    """One wire on which tensors are summed, one after the other, in the same order on every rank."""

    def __init__(self, world: World | None = None) -> None:
        self.parcels = Parcels((world or Joined()).wire("all-reduce"))
        self._speeds: Speeds | None = None
        self._link: Link | None = None

    def sum(self, tensor: Tensor, method: Method = "auto") -> Report:
        """Sum a tensor over all ranks, in place.

        Integers are what any all-reduce makes of them. Floats are ``0 + x0 + x1 + ...`` in rank order,
        the same bits on every rank and by every method.
        """
        known = get_args(Method)
        if method not in known:
            raise ConfigError(f"all-reduce: no such method {method!r} (known: {', '.join(known)})")
        if tensor.dtype not in _TYPES or tensor.device.type != "cpu":
            raise ConfigError(
                f"all-reduce: expected float32, float64, int32 or int64 on the CPU, got {tensor.dtype} on "
                f"{tensor.device}; convert it first"
            )
        flat = tensor.detach().reshape(-1)  # a copy where memory is not contiguous
        flat = flat if flat.is_contiguous() else flat.contiguous()
        x: NDArray[Any] = flat.numpy()
        parcels, before = self.parcels, self.parcels.bytes_sent
        parcels.begin(zlib.crc32(f"{method} {tensor.dtype} {len(x)}".encode()))
        choice = self._choose(x) if method == "auto" else Choice(method, self._unit(x, method))
        self._carry_out(choice, x)
        if flat.data_ptr() != tensor.data_ptr():
            tensor.detach().copy_(flat.view(tensor.shape))
        return Report(choice.method, choice.unit, parcels.bytes_sent - before)

    def close(self) -> None:
        """Leave the wire."""
        self.parcels.wire.close()

    def _carry_out(self, choice: Choice, x: NDArray[Any]) -> None:
        if self.parcels.ranks == 1:
            np.add(x, x.dtype.type(0), out=x)
        elif choice.method == "dense":
            self.parcels.announce_to_all()
            sum_dense(self.parcels, x)
        else:
            way = {"gather": sum_gathered, "owners": sum_by_owners, "union": sum_union}[choice.method]
            way(self.parcels, x, choice.unit)

    def _choose(self, x: NDArray[Any]) -> Choice:
        if self.parcels.ranks == 1 or len(x) <= _SMALL:
            return Choice("dense")
        link, speeds = self._measured()
        fullness = sample_fullness(self.parcels, x)
        return choose(len(x), x.itemsize, self.parcels.ranks, fullness, link, speeds)

    def _unit(self, x: NDArray[Any], method: str) -> int:
        """Words that stand or fall together, where the method is forced: what takes fewest bytes."""
        if method == "dense" or self.parcels.ranks == 1 or len(x) <= _SMALL:
            return 1
        return _smallest(sample_fullness(self.parcels, x))

    def _measured(self) -> tuple[Link, Speeds]:
        """Measure, once, what all ranks can count on."""
        if self._link is None or self._speeds is None:
            link, speeds = probe_link(self.parcels.wire), measure_speeds()
            own = np.array(
                [link.latency_s, 1 / link.bytes_per_s, 1 / speeds.read, 1 / speeds.move, 1 / speeds.add]
            )
            heard = np.empty((self.parcels.ranks, len(own)))
            self.parcels.announce_to_all()
            self.parcels.spread(own, heard.reshape(-1), np.full(self.parcels.ranks, len(own)))
            worst = heard.max(axis=0).tolist()
            self._link = Link(worst[0], 1 / worst[1])
            self._speeds = Speeds(1 / worst[2], 1 / worst[3], 1 / worst[4])
        return self._link, self._speeds


def _smallest(fullness: Fullness) -> int:
    """Find the unit whose words and index take least; an index entry is about ten bits."""
    costs = [share * (1 + 10 / (32 * unit)) for unit, share in zip(UNITS, fullness.ranks, strict=True)]
    return UNITS[int(np.argmin(costs))]
