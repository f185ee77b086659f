"""The machines: memory, speed and links of every device, from three lines of TOML or from many.

::

    devices.count = 8                 # all alike, on one switch
    devices.memory_gb = 16
    devices.mbps = 1000

    [[devices]]                       # or groups of them
    name = "server"
    count = 2
    memory_gb = 64
    mbps = 10000
    samples_per_s = 40000
    tiers = [{name = "disk", memory_gb = 900, mbps = 8000}]

    [[devices]]
    name = "phone"
    count = 30
    memory_gb = 1
    egress_mbps = 20
    ingress_mbps = 80
    latency_us = 20000

    [[links]]                         # what is between two groups, if the switch is not all
    between = ["server", "phone"]
    mbps = 100

A transfer is limited by what leaves a device, by what reaches a device and by the link between two;
each limit is full-duplex. Shape legend: ``N`` devices, in the order of their groups.
"""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, field_validator, model_validator

from laconic.config import Settings, load

__all__ = ["Cluster", "DeviceGroup", "LinkLimit", "Tier", "read_cluster"]

Floats = NDArray[np.float64]
_GB = 1e9
_BYTES_PER_MBIT = 1e6 / 8


class Tier(Settings):
    """Slower memory behind a device: the host's, a disk's."""

    name: str
    """Name of the tier."""

    memory_gb: float = Field(gt=0)
    """Size of the tier, in 10^9 bytes."""

    mbps: float = Field(gt=0)
    """Speed of reading and writing rows, in Mbit/s."""


class DeviceGroup(Settings):
    """Devices that are alike. A device is a rank of training."""

    name: str = "device"
    """Name of the group."""

    count: int = Field(ge=1)
    """Number of devices in the group."""

    memory_gb: float = Field(gt=0)
    """Memory of one device for embedding rows and their optimizer state, in 10^9 bytes."""

    mbps: float | None = Field(default=None, gt=0)
    """Bandwidth of a device's link in each direction, in Mbit/s."""

    egress_mbps: float | None = Field(default=None, gt=0)
    """Bandwidth away from a device, in Mbit/s; by default ``mbps``."""

    ingress_mbps: float | None = Field(default=None, gt=0)
    """Bandwidth towards a device, in Mbit/s; by default ``mbps``."""

    latency_us: float = Field(default=100.0, ge=0)
    """Latency of a message without bytes, to or from a device, in microseconds."""

    samples_per_s: float | None = Field(default=None, gt=0)
    """Measured speed of computation without communication, in samples per second."""

    step_ms: float | None = Field(default=None, gt=0)
    """Measured time of computation of a step at the planned batch, in milliseconds."""

    tiers: tuple[Tier, ...] = ()
    """Slower memories, the fastest first."""

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if self.samples_per_s is not None and self.step_ms is not None:
            raise ValueError(
                f"expected samples_per_s or step_ms, got both ({self.samples_per_s:g} and {self.step_ms:g}); leave one out"
            )
        for name in ("egress_mbps", "ingress_mbps"):
            if getattr(self, name) is None and self.mbps is None:
                raise ValueError(f"expected mbps or {name}, got neither; what is its link?")
        return self

    @property
    def sends_mbps(self) -> float:
        """Bandwidth away from a device, in Mbit/s."""
        return self.egress_mbps or self.mbps or 0.0

    @property
    def receives_mbps(self) -> float:
        """Bandwidth towards a device, in Mbit/s."""
        return self.ingress_mbps or self.mbps or 0.0

    def compute_s(self, samples: float) -> float:
        """Return seconds of computation for ``samples`` samples; 0 if it was not measured."""
        if self.step_ms is not None:
            return self.step_ms / 1e3
        return samples / self.samples_per_s if self.samples_per_s is not None else 0.0


class LinkLimit(Settings):
    """Limit of the link between a device of one group and a device of another or the same."""

    between: tuple[str, str]
    """Names of the two groups."""

    mbps: float = Field(gt=0)
    """Bandwidth between any two such devices in each direction, in Mbit/s."""

    latency_us: float = Field(default=0.0, ge=0)
    """Latency in addition to that of the devices, in microseconds."""


class Cluster(Settings):
    """Devices, and the links between them."""

    devices: tuple[DeviceGroup, ...] = Field(min_length=1)
    """One group of devices, or several."""

    links: tuple[LinkLimit, ...] = ()
    """Limits between groups. All others are joined by a switch that is never full."""

    @field_validator("devices", mode="before")
    @classmethod
    def _one_group(cls, value: Any) -> Any:
        return (value,) if isinstance(value, dict | DeviceGroup) else value

    @model_validator(mode="after")
    def _known(self) -> Self:
        names = [group.name for group in self.devices]
        if len(set(names)) < len(names):
            raise ValueError(f"devices: expected groups of different names, got {', '.join(names)}")
        for link in self.links:
            for name in link.between:
                if name not in names:
                    raise ValueError(f"links.between: no such group {name!r} (known: {', '.join(names)})")
        return self

    @classmethod
    def alike(cls, count: int, *, memory_gb: float, mbps: float, **more: Any) -> Cluster:
        """Make a cluster of equal devices on one switch."""
        return cls(devices=(DeviceGroup(count=count, memory_gb=memory_gb, mbps=mbps, **more),))

    @property
    def ranks(self) -> int:
        """Number of all devices."""
        return sum(group.count for group in self.devices)

    @cached_property
    def group_N(self) -> NDArray[np.int64]:
        """Number of each device's group."""
        return np.repeat(np.arange(len(self.devices)), [group.count for group in self.devices])

    @cached_property
    def memory_N(self) -> Floats:
        """Bytes of memory of each device."""
        return self._each([group.memory_gb * _GB for group in self.devices])

    @cached_property
    def egress_N(self) -> Floats:
        """Bytes per second that can leave each device."""
        return self._each([group.sends_mbps * _BYTES_PER_MBIT for group in self.devices])

    @cached_property
    def ingress_N(self) -> Floats:
        """Bytes per second that can reach each device."""
        return self._each([group.receives_mbps * _BYTES_PER_MBIT for group in self.devices])

    @cached_property
    def link_NN(self) -> Floats:
        """Bytes per second from each device (row) to each other: what link and both ends allow."""
        between = np.full((len(self.devices),) * 2, np.inf)
        for a, b, link in self._between():
            between[a, b] = between[b, a] = min(between[a, b], link.mbps * _BYTES_PER_MBIT)
        ends_NN = np.minimum(self.egress_N[:, None], self.ingress_N[None, :])
        link_NN: Floats = np.minimum(between[np.ix_(self.group_N, self.group_N)], ends_NN)
        return link_NN

    @cached_property
    def latency_NN(self) -> Floats:
        """Seconds of an empty message between two devices: the slower end's, and the link's."""
        extra = np.zeros((len(self.devices),) * 2)
        for a, b, link in self._between():
            extra[a, b] = extra[b, a] = extra[a, b] + link.latency_us / 1e6
        own_N = self._each([group.latency_us / 1e6 for group in self.devices])
        latency_NN: Floats = (
            np.maximum(own_N[:, None], own_N[None, :]) + extra[np.ix_(self.group_N, self.group_N)]
        )
        return latency_NN

    def compute_N(self, samples_N: Any) -> Floats:
        """Return seconds of computation of each device for its samples."""
        samples = np.broadcast_to(np.asarray(samples_N, np.float64), (self.ranks,))
        groups = [self.devices[g] for g in self.group_N]
        return np.array([group.compute_s(float(n)) for group, n in zip(groups, samples, strict=True)])

    def _each(self, values: list[float]) -> Floats:
        return np.array(values, np.float64)[self.group_N]

    def _between(self) -> list[tuple[int, int, LinkLimit]]:
        names = [group.name for group in self.devices]
        return [(names.index(link.between[0]), names.index(link.between[1]), link) for link in self.links]


def read_cluster(path: str | Path) -> Cluster:
    """Read ``cluster.toml``; ``ConfigError`` has one line for each problem."""
    return load(path, Cluster)
