"""What the ids of a pooled table take: all lookups in the order of samples, and how long the bags are.

Lengths travel unless every bag has exactly one id at its owner. How they vary is not known from frequencies; a Poisson distribution
with their mean stands for it.
"""

from __future__ import annotations

import math

import numpy as np

from laconic.cost.id_bytes import EMPTY_LIST_BYTES, unsorted_ids_bytes
from laconic.cost.part import Part

__all__ = ["bag_lengths_bytes", "pooled_ids_bytes"]

_LONGEST_BAG = 4096


def pooled_ids_bytes(part: Part, samples: float, share: float, coded: bool) -> float:
    """Bytes of the ids that one device sends to one that holds such a share of the rows."""
    frequencies = part.frequencies
    ids = samples * frequencies.lookups_per_sample * frequencies.share * share
    if not coded:
        return 8 * ids
    held_G = frequencies.count_G.astype(np.float64) * share
    return unsorted_ids_bytes(ids, held_G, frequencies.probability_G, part.id_order)


def bag_lengths_bytes(part: Part, samples: float, share: float, coded: bool) -> float:
    """Bytes of the lengths of bags, which say what belongs to which sample."""
    mean = part.frequencies.lookups_per_sample * part.frequencies.share * share
    if share == 0 or samples == 0 or math.isclose(mean, 1.0, rel_tol=1e-9):
        return float(EMPTY_LIST_BYTES) if coded else 0.0
    if not coded:
        return 8 * samples
    length = np.arange(min(int(mean + 10 * math.sqrt(mean) + 10), _LONGEST_BAG) + 1)
    log_factorial = np.concatenate([[0.0], np.cumsum(np.log(np.maximum(length[1:], 1)))])
    poisson = np.exp(length * math.log(mean) - mean - log_factorial)
    return unsorted_ids_bytes(samples, np.ones(len(length)), poisson, "ranked")
