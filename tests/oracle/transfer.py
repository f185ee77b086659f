"""What traffic takes on a cluster: the slowest device or link decides.

::

    transfer = latency + max(bytes that leave a device   / what can leave it,
                             bytes that reach a device   / what can reach it,
                             bytes from one to another   / the link between them)

All links work at the same time, so these are lower bounds that a good schedule comes close to.
Shape legend: ``N`` devices.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from laconic.cost.needed_rows import distinct_rows
from laconic.cost.topology import Cluster
from laconic.errors import PlanError
from tests.oracle.part import Part

__all__ = ["slow_memory_s", "touched_rows_N", "transfer_s"]

Floats = NDArray[np.float64]


def transfer_s(cluster: Cluster, links_NN: Floats) -> float:
    """Seconds to move so many bytes between devices, all at once; 0 where nothing moves."""
    ranks = cluster.ranks
    if links_NN.shape != (ranks, ranks):
        raise PlanError(f"transfer: expected bytes between {ranks} devices, got a matrix of {links_NN.shape}")
    moved_NN = links_NN * (1 - np.eye(ranks))
    if not moved_NN.any():
        return 0.0
    slowest = max(
        float((moved_NN.sum(axis=1) / cluster.egress_N).max()),
        float((moved_NN.sum(axis=0) / cluster.ingress_N).max()),
        float((moved_NN / cluster.link_NN).max()),
    )
    return float(cluster.latency_NN[moved_NN > 0].max()) + slowest


def touched_rows_N(part: Part, samples_N: Any) -> Floats:
    """Distinct rows that each device reads from its memory for all who ask it, and updates, in a
    step.

    The union of all devices' lookups: a row that two ask for is read once.
    """
    samples = np.broadcast_to(np.asarray(samples_N, np.float64), (part.holding.ranks,))
    lookups = float(samples.sum()) * part.frequencies.lookups_per_sample
    touched: Floats = part.holding.held_N * distinct_rows(part.frequencies, lookups, part.correlation)
    return touched


def slow_memory_s(cluster: Cluster, parts: Sequence[Part], samples_N: Any, tier: str) -> float:
    """Return seconds to read the rows of these parts from a tier and to write them back."""
    speed_N = np.array([_speed(cluster, int(group), tier) for group in cluster.group_N])
    bytes_N = sum(
        (8.0 * part.dim * touched_rows_N(part, samples_N) for part in parts), np.zeros(cluster.ranks)
    )
    if (speed_N[bytes_N > 0] == 0).any():
        raise PlanError(f"tier {tier!r}: a device that holds rows in it has none; give its group such a tier")
    return float((bytes_N[bytes_N > 0] / speed_N[bytes_N > 0]).max(initial=0.0))


def _speed(cluster: Cluster, group: int, tier: str) -> float:
    speeds = [1e6 / 8 * t.mbps for t in cluster.devices[group].tiers if t.name == tier]
    return speeds[0] if speeds else 0.0
