"""Expected traffic of a step: rows and bytes from every device to every other, for any placement.

What the exchange does (``laconic.exchange``), in expectation. A device with ``b`` samples makes
``b`` times ``lookups_per_sample`` lookups, and of a part's rows it needs U distinct ones::

    rows      ids       requester -> holder    U x share ids, sorted; holders of every copy get them
              forward   holder -> requester    U x share rows
              backward  requester -> holder    U x share gradients, to every copy; of a part that
                                               is replicated on three devices and more to owners,
                                               who send sums to all
    pooled    ids       requester -> holder    lookups x share ids, and lengths unless all are 1
              forward   holder -> requester    one vector for each sample, empty bags too
              backward  requester -> holder    the same

What a device asks of itself is no traffic. Each direction begins with size messages between all
devices. Where shares are by id modulo ranks they are exact on average over owners; the owner of a
very hot row has a little more. Matrices have senders as rows and receivers as columns. Shape
legend: ``N`` devices, ``P`` parts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from laconic.cost.id_bytes import pooled_bytes, sorted_ids_bytes
from laconic.cost.link import message_bytes, owners_sum
from laconic.cost.needed_rows import distinct_rows, needed_G, sum_count_bytes
from laconic.errors import PlanError
from tests.oracle.part import Part

__all__ = ["Flow", "Traffic", "expected_traffic"]

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Flow:
    """One direction of a step."""

    rows_NN: Floats
    """Ids, rows or gradients."""

    bytes_NN: Floats
    """Without size messages."""

    bytes_P: Floats
    """The same by part, of all devices together."""

    size_message: float
    """Bytes of the message from one device to another that announces sizes."""

    @property
    def links_NN(self) -> Floats:
        """Bytes on each link, size messages included."""
        links: Floats = self.bytes_NN + self.size_message * (1 - np.eye(len(self.bytes_NN)))
        return links

    @property
    def total(self) -> float:
        """Bytes that all devices send, size messages included."""
        return float(self.links_NN.sum())


@dataclass(frozen=True, eq=False)
class Traffic:
    """All that a step's embeddings send."""

    ids: Flow
    forward: Flow
    backward: Flow

    @property
    def links_NN(self) -> Floats:
        """Bytes on each link in a step."""
        links: Floats = self.ids.links_NN + self.forward.links_NN + self.backward.links_NN
        return links

    @property
    def total(self) -> float:
        """Bytes that all devices send in a step."""
        return self.ids.total + self.forward.total + self.backward.total


def expected_traffic(parts: Sequence[Part], samples_N: Any, *, coded_ids: bool = True) -> Traffic:
    """Add up what the parts send if each device has ``samples`` samples, or all the same number."""
    if not parts:
        raise PlanError("traffic: expected at least one part, got none")
    ranks = parts[0].holding.ranks
    samples = np.broadcast_to(np.asarray(samples_N, np.float64), (ranks,))
    if not (samples >= 0).all():
        raise PlanError(f"traffic: expected samples >= 0 for each of {ranks} devices, got {samples_N!r}")
    flows = np.zeros((3, 2, ranks, ranks))
    bytes_3P = np.zeros((3, len(parts)))
    for number, part in enumerate(parts):
        if part.holding.ranks != ranks:
            raise PlanError(
                f"traffic: expected {ranks} devices for every part, got {part.holding.ranks} for {part.table!r}"
            )
        own = _part_flows(part, samples, coded_ids)
        flows += own
        bytes_3P[:, number] = own[:, 1].sum(axis=(1, 2))
    blocks = len(parts)
    messages = [message_bytes(2 * blocks, 2), message_bytes(blocks, 2), message_bytes(blocks, 2)]
    directions = [Flow(flows[d, 0], flows[d, 1], bytes_3P[d], messages[d]) for d in range(3)]
    return Traffic(*directions)


def _part_flows(part: Part, samples_N: Floats, coded_ids: bool) -> Floats:
    """Rows and bytes: (ids, forward, backward) x (rows, bytes) x senders x receivers."""
    apart_NN = 1 - np.eye(len(samples_N))
    served_NN, updated_NN = part.holding.served_NN * apart_NN, part.holding.updated_NN * apart_NN
    if part.send == "pooled":
        forward_NN, backward_NN = samples_N[:, None] * (served_NN > 0), samples_N[:, None] * (updated_NN > 0)
        ids_NN = (
            samples_N[:, None] * (part.frequencies.lookups_per_sample * part.frequencies.share) * updated_NN
        )
    else:
        distinct_N = _of_each(samples_N, lambda samples: distinct_rows(*_lookups(part, samples)))
        forward_NN, ids_NN = distinct_N[:, None] * served_NN, distinct_N[:, None] * updated_NN
        backward_NN = ids_NN
    id_bytes_NN = _id_bytes(part, samples_N, updated_NN, coded_ids) * apart_NN
    if part.send != "pooled" and _summed_by_owners(part):
        share = apart_NN / len(samples_N)
        united = distinct_rows(*_lookups(part, float(samples_N.sum())))
        ids_NN = backward_NN = (distinct_N[:, None] + united) * share
        sums_N = np.full(len(samples_N), samples_N.sum())
        sum_bytes_NN = (
            _id_bytes(part, sums_N, share, coded_ids) + united * sum_count_bytes(len(samples_N)) * share
        )
        id_bytes_NN = _id_bytes(part, samples_N, share, coded_ids) + sum_bytes_NN
    return np.array(
        [
            [ids_NN, id_bytes_NN],
            [forward_NN.T, part.forward_bytes * forward_NN.T],
            [backward_NN, part.backward_bytes * backward_NN],
        ]
    )


def _summed_by_owners(part: Part) -> bool:
    """Return whether gradients of a replicated part go to owners, and their sums to all."""
    ranks, share_CN = part.holding.ranks, part.holding.share_CN
    return owners_sum(ranks) and len(share_CN) == ranks and bool((share_CN == np.eye(ranks)).all())


def _lookups(part: Part, samples: float) -> tuple[Any, float, float]:
    return part.frequencies, samples * part.frequencies.lookups_per_sample, part.correlation


def _id_bytes(part: Part, samples_N: Floats, share_NN: Floats, coded: bool) -> Floats:
    """Bytes of the lists of ids, and of bag lengths, from each device to each other."""
    frequencies = part.frequencies
    pairs = np.stack([np.broadcast_to(samples_N[:, None], share_NN.shape), share_NN], axis=-1).reshape(-1, 2)
    kinds, kind = np.unique(pairs, axis=0, return_inverse=True)
    nbytes = []
    for samples, share in kinds:
        held = frequencies.count_G.astype(np.float64) * share
        if part.send == "pooled":
            nbytes.append(pooled_bytes(frequencies, part.id_order, samples, share, coded=coded))
        elif not coded:
            nbytes.append(8 * share * distinct_rows(*_lookups(part, samples)))
        else:
            needed = needed_G(*_lookups(part, samples))
            nbytes.append(sorted_ids_bytes(held, needed, part.id_order))
    return np.array(nbytes)[kind].reshape(share_NN.shape)


def _of_each(samples_N: Floats, function: Any) -> Floats:
    """Apply a function to each device's samples, once for equal ones."""
    kinds, kind = np.unique(samples_N, return_inverse=True)
    return np.array([function(float(samples)) for samples in kinds])[kind]
