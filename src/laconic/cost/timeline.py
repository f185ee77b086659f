"""Seconds of a step, from the loads of all ranks: what they send, compute and keep.

Ranks meet in every exchange, so each direction takes as long as on the busiest link, and
computation as long as on the slowest rank. One direction follows the other; the dense gradients
share their links, but most of them travel while the backward pass goes on::

    wire = ids + forward + backward + files + max(0, dense - dense overlap) + rounds * latency
    step = largest (computation + codecs and rows in memory) + codec of dense gradients
           + max(0, wire - overlap)

``overlap`` is the time of computation that hides transfers: rows of the next step are fetched while
dense gradients travel and the bottom MLP computes. Codecs are never hidden, because they need the
cores that compute (``laconic.cost.link``). With prefetching, rows that the step does not change
travel during the rest of computation, as many of them as fit in. Shape legend: ``K`` resources,
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
"""Resources of phases that follow one another. A phase lasts as long as its busiest resource."""

_ALMOST_NOTHING = 1e-30  # capacity of a missing resource: no load takes no time, any load forever

ROUNDS = 6
"""Number of messages that a step waits for: in each of the three directions, one with sizes and
bytes, and one with the bytes that did not fit in."""


@dataclass(frozen=True, slots=True)
class StepTime:
    """Seconds of a step, and what they consist of."""

    step_s: float
    busy_s: float
    """Seconds of computation, codecs and rows in memory, on the slowest rank."""
    compute_s: float
    """Seconds of computation alone, on that rank."""
    wire_s: float
    """Seconds of all transfers, hidden or not, without dense gradients beside the backward pass."""
    phases: dict[str, float]
    """Seconds of each phase of the transfers, by name."""
    busiest: dict[str, tuple[Resource, int]]
    """Resource and rank that each phase waits for."""
    slowest: int
    """Rank that computes for longest."""
    prefetch_saves_s: float = 0.0
    """Seconds that prefetching saves of a step."""

    @property
    def bottleneck(self) -> str:
        """Name what the step waits for most, for people."""
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
        self._window_s = speeds.prefetch_overlap * float(self.compute_N.max())
        self._prefetch_s = 1e-9 * speeds.prefetch_ns / workload.vector_bytes  # of a byte
        self.file_space_N, self.file_rate_N = _files(cluster)
        beside_s = speeds.dense_overlap * float(self.compute_N.max())
        self._dense_s = max(all_reduce_s(cluster, workload.dense_bytes) - beside_s, 0.0)
        self._dense_codec_s = workload.dense_codec_s if self.ranks > 1 else 0.0
        self._latency_s = ROUNDS * float(cluster.latency_NN.max()) if self.ranks > 1 else 0.0
        self.constant_s = self._dense_s + self._latency_s

    @cached_property
    def capacity_KN(self) -> Floats:
        """Units of each resource per second, or in all for memory and space on disk."""
        cluster = self.cluster
        capacity_KN = np.ones((len(Resource), self.ranks))
        lane_NN = cluster.link_NN.copy()
        np.fill_diagonal(lane_NN, np.inf)
        slowest_out, slowest_in = lane_NN.min(axis=1), lane_NN.min(axis=0)
        for first in (Resource.IDS_OUT, Resource.FORWARD_OUT, Resource.BACKWARD_OUT):
            capacity_KN[first], capacity_KN[first + 1] = cluster.egress_N, cluster.ingress_N
            # an owner is asked on lanes towards it, and answers on those away from it
            capacity_KN[first + 2] = slowest_out if first == Resource.FORWARD_OUT else slowest_in
        capacity_KN[Resource.RAM] = cluster.memory_N
        capacity_KN[Resource.FILES], capacity_KN[Resource.FILE_SPACE] = self.file_rate_N, self.file_space_N
        return np.maximum(capacity_KN, _ALMOST_NOTHING)

    def seconds(self, total_KN: Floats) -> tuple[Any, Any]:
        """Return the step and the wire of ``... x K x N`` loads."""
        time_KN = total_KN[..., : Resource.CPU, :] / self.capacity_KN[: Resource.CPU]
        wire = self.constant_s + sum(time_KN[..., phase, :].max(axis=(-2, -1)) for phase in PHASES.values())
        busy = (self.compute_N + total_KN[..., Resource.CPU, :]).max(axis=-1) + self._dense_codec_s
        return step_s(busy, wire, self.overlap_s), wire

    def shortage(self, total_KN: Floats) -> Any:
        """Return bytes of memory and files that are missing, on all ranks together."""
        short_N = np.maximum(total_KN[..., Resource.RAM, :] - self.cluster.memory_N, 0)
        short_N = short_N + np.maximum(total_KN[..., Resource.FILE_SPACE, :] - self.file_space_N, 0)
        return short_N.sum(axis=-1)

    def prefetch_saves_s(self, total_KN: Floats, prefetched_KN: Floats) -> float:
        """Return seconds that prefetching ``prefetched_KN`` of the load saves; below 0 it costs."""
        rows = PHASES["forward"]
        prefetched = float((prefetched_KN[rows] / self.capacity_KN[rows]).max())
        _, wire = self.seconds(total_KN)
        exposed = float(step_s(0.0, wire, self.overlap_s))
        hidden = min(prefetched, self._window_s, exposed)
        return hidden - self._prefetch_s * float(prefetched_KN[Resource.FORWARD_IN].max())

    def explain(self, total_KN: Floats, prefetch_saves_s: float = 0.0) -> StepTime:
        """Return where a step's time goes; prefetching saves ``prefetch_saves_s`` of it."""
        step, wire = self.seconds(total_KN)
        busy_N = self.compute_N + total_KN[Resource.CPU] + self._dense_codec_s
        time_KN = total_KN[: Resource.CPU] / self.capacity_KN[: Resource.CPU]
        phases, busiest = {}, {}
        for name, rows in PHASES.items():
            k, rank = np.unravel_index(int(time_KN[rows].argmax()), time_KN[rows].shape)
            phases[name] = float(time_KN[rows].max())
            busiest[name] = (Resource(rows.start + int(k)), int(rank))
        phases |= {"dense": self._dense_s, "latency": self._latency_s}
        slowest = int(busy_N.argmax())
        return StepTime(
            float(step) - prefetch_saves_s,
            float(busy_N.max()),
            float(self.compute_N[slowest]),
            float(wire),
            phases,
            busiest,
            slowest,
            prefetch_saves_s,
        )


def all_reduce_s(cluster: Cluster, dense_bytes: float) -> float:
    """Return seconds to sum dense gradients along a ring through all devices in their order."""
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
    """Return bytes of each rank's first tier, and bytes per second; 0 if it has none."""
    space, rate = [], []
    for g in cluster.group_N:
        tiers = cluster.devices[g].tiers
        space.append(tiers[0].memory_gb * 1e9 if tiers else 0.0)
        rate.append(tiers[0].mbps * 1e6 / 8 if tiers else 0.0)
    return np.array(space), np.array(rate)
