"""How long a step takes, given what every rank has to send, compute and keep.

Ranks meet in every exchange, so each direction takes as long as on the busiest link, and
computation as long as on the slowest rank. One direction follows the other; the dense gradients
share their links, but most of them travel while the backward pass goes on::

    wire = ids + forward + backward + files + max(0, dense - dense overlap) + rounds * latency
    step = largest (computation + codecs and rows in memory) + codec of dense gradients + max(0, wire - overlap)

``overlap`` is the part of computation during which the wire is in use: rows of the next step are
fetched while dense gradients travel and the bottom MLP computes. Codecs are never hidden: they need
the cores that compute (``laconic.cost.link``). With look-ahead, rows that the step does not change
travel during the rest of computation, or as much of them as fits in. Shape legend: ``K`` resources,
``N`` ranks; ``...`` any number of alternatives.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from laconic.cost.link import ring_bytes, step_s
from laconic.cost.load import Resource
from laconic.cost.speeds import EngineSpeeds
from laconic.cost.topology import Cluster
from laconic.cost.workload import Workload

__all__ = ["PHASES", "ROUNDS", "StepTime", "Timeline", "all_reduce_s"]

Floats = NDArray[np.float64]
PHASES: dict[str, slice] = {
    "ids": slice(Resource.IDS_OUT, Resource.FORWARD_OUT),
    "forward": slice(Resource.FORWARD_OUT, Resource.BACKWARD_OUT),
    "backward": slice(Resource.BACKWARD_OUT, Resource.FILES),
    "files": slice(Resource.FILES, Resource.CPU),
}
"""Resources of what follows one another, each of which takes as long as its busiest."""

_ALMOST_NOTHING = 1e-30  # what is not there has this rate: nothing of it takes no time, anything forever

ROUNDS = 6
"""Messages that a step waits for: for ids, forward and backward, sizes with bytes, and bytes that
did not fit in."""


@dataclass(frozen=True, slots=True)
class StepTime:
    """A step, in seconds."""

    step_s: float
    busy_s: float
    """Computation, codecs and rows in memory, on the slowest rank."""
    compute_s: float
    """Computation alone, on that rank."""
    wire_s: float
    """All that travels but for dense gradients beside the backward pass, hidden or not."""
    phases: dict[str, float]
    """Its parts."""
    busiest: dict[str, tuple[Resource, int]]
    """What each direction waits for: a resource, and the rank."""
    slowest: int
    """Rank that computes longest."""
    ahead_s: float = 0.0
    """What looking ahead saves of a step."""

    @property
    def bottleneck(self) -> str:
        """What the step waits for most, for people."""
        if self.step_s - self.busy_s < self.busy_s:
            own = "computation" if self.compute_s >= self.busy_s / 2 else "codecs and rows in memory"
            return f"{own} of rank {self.slowest}"
        longest = max(self.phases, key=lambda phase: self.phases[phase])
        if longest not in self.busiest:
            return longest
        resource, rank = self.busiest[longest]
        place = resource.name.rpartition("_")[2]
        words = {"OUT": "what leaves", "IN": "what reaches", "LANE": "a lane of"}.get(place, "files of")
        return f"{longest}: {words} rank {rank}"


class Timeline:
    """Turns loads into seconds on one cluster."""

    def __init__(self, cluster: Cluster, workload: Workload, speeds: EngineSpeeds) -> None:
        self.cluster = cluster
        self.ranks = cluster.ranks
        self.compute_N = cluster.compute_N(workload.batch)
        self.overlap_s = speeds.overlap * float(self.compute_N.max())
        self._window_s = speeds.look_ahead * float(self.compute_N.max())
        self._early_s = 1e-9 * speeds.early_ns / workload.vector_bytes  # of a byte
        self.file_space_N, self.file_rate_N = _files(cluster)
        beside_s = speeds.dense_overlap * float(self.compute_N.max())
        self._dense_s = max(all_reduce_s(cluster, workload.dense_bytes) - beside_s, 0.0)
        self._dense_codec_s = workload.dense_codec_s if self.ranks > 1 else 0.0
        self._latency_s = ROUNDS * float(cluster.latency_NN.max()) if self.ranks > 1 else 0.0
        self.constant_s = self._dense_s + self._latency_s

    @cached_property
    def rate_KN(self) -> Floats:
        """Units per second, or in all where a resource is kept."""
        cluster = self.cluster
        rate_KN = np.ones((len(Resource), self.ranks))
        lane_NN = cluster.link_NN.copy()
        np.fill_diagonal(lane_NN, np.inf)
        slowest_out, slowest_in = lane_NN.min(axis=1), lane_NN.min(axis=0)
        for first in (Resource.IDS_OUT, Resource.FORWARD_OUT, Resource.BACKWARD_OUT):
            rate_KN[first], rate_KN[first + 1] = cluster.egress_N, cluster.ingress_N
            # an owner is asked on lanes towards it, and answers on those away from it
            rate_KN[first + 2] = slowest_out if first == Resource.FORWARD_OUT else slowest_in
        rate_KN[Resource.RAM] = cluster.memory_N
        rate_KN[Resource.FILES], rate_KN[Resource.FILE_SPACE] = self.file_rate_N, self.file_space_N
        return np.maximum(rate_KN, _ALMOST_NOTHING)

    def seconds(self, total_KN: Floats) -> tuple[Any, Any]:
        """Return the step and the wire of ``... x K x N`` loads."""
        time_KN = total_KN[..., : Resource.CPU, :] / self.rate_KN[: Resource.CPU]
        wire = self.constant_s + sum(time_KN[..., phase, :].max(axis=(-2, -1)) for phase in PHASES.values())
        busy = (self.compute_N + total_KN[..., Resource.CPU, :]).max(axis=-1) + self._dense_codec_s
        return step_s(busy, wire, self.overlap_s), wire

    def shortage(self, total_KN: Floats) -> Any:
        """Bytes of memory and files that are missing, on all ranks together."""
        short_N = np.maximum(total_KN[..., Resource.RAM, :] - self.cluster.memory_N, 0)
        short_N = short_N + np.maximum(total_KN[..., Resource.FILE_SPACE, :] - self.file_space_N, 0)
        return short_N.sum(axis=-1)

    def ahead_s(self, total_KN: Floats, early_KN: Floats) -> float:
        """Return what a step gains, or loses, if ``early_KN`` of its load travels a step early."""
        rows = PHASES["forward"]
        early = float((early_KN[rows] / self.rate_KN[rows]).max())
        _, wire = self.seconds(total_KN)
        exposed = float(step_s(0.0, wire, self.overlap_s))
        hidden = min(early, self._window_s, exposed)
        return hidden - self._early_s * float(early_KN[Resource.FORWARD_IN].max())

    def explain(self, total_KN: Floats, ahead_s: float = 0.0) -> StepTime:
        """Say where a step's time goes; looking ahead saves so much of it."""
        step, wire = self.seconds(total_KN)
        busy_N = self.compute_N + total_KN[Resource.CPU] + self._dense_codec_s
        time_KN = total_KN[: Resource.CPU] / self.rate_KN[: Resource.CPU]
        phases, busiest = {}, {}
        for name, rows in PHASES.items():
            k, rank = np.unravel_index(int(time_KN[rows].argmax()), time_KN[rows].shape)
            phases[name] = float(time_KN[rows].max())
            busiest[name] = (Resource(rows.start + int(k)), int(rank))
        phases |= {"dense": self._dense_s, "latency": self._latency_s}
        slowest = int(busy_N.argmax())
        return StepTime(
            float(step) - ahead_s,
            float(busy_N.max()),
            float(self.compute_N[slowest]),
            float(wire),
            phases,
            busiest,
            slowest,
            ahead_s,
        )


def all_reduce_s(cluster: Cluster, dense_bytes: float) -> float:
    """Seconds to sum dense gradients along a ring through all devices in their order."""
    ranks = cluster.ranks
    if ranks == 1 or dense_bytes == 0:
        return 0.0
    here = np.arange(ranks)
    after = (here + 1) % ranks
    speed = float(cluster.link_NN[here, after].min())
    return 2 * (ranks - 1) * float(cluster.latency_NN[here, after].max()) + (
        ring_bytes(dense_bytes, ranks) / speed
    )


def _files(cluster: Cluster) -> tuple[Floats, Floats]:
    """Bytes that each rank's first tier has, and bytes per second; 0 where there is none."""
    space, rate = [], []
    for g in cluster.group_N:
        tiers = cluster.devices[g].tiers
        space.append(tiers[0].memory_gb * 1e9 if tiers else 0.0)
        rate.append(tiers[0].mbps * 1e6 / 8 if tiers else 0.0)
    return np.array(space), np.array(rate)
