"""The hottest rows of all tables together: one threshold on how often a row is looked up by a sample.

Rows of equal size compete for the same memory, so the best ``k`` rows to copy are those with the highest rates,
whatever table they are in and however large the batch (``docs/papers/avoidance.md``, proposition 2). Shape legend: ``T`` tables, ``G``
runs of all tables.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from laconic.placement.frequencies import Frequencies

__all__ = ["hottest_of_all", "rate_of_rank"]


def rate_of_rank(frequencies_T: Sequence[Frequencies], k: int) -> float:
    """Lookups per sample that a row must exceed to be among the ``k`` hottest of all tables; 0 if all are.

    Rows of one run are all in or all out, so there may be fewer than ``k`` above it.
    """
    rate_G = np.concatenate([f.probability_G * f.lookups_per_sample for f in frequencies_T])
    count_G = np.concatenate([f.count_G for f in frequencies_T])
    hottest = np.argsort(-rate_G, kind="stable")
    out = np.flatnonzero(np.cumsum(count_G[hottest]) > k)
    return float(rate_G[hottest[out[0]]]) if len(out) else 0.0


def hottest_of_all(
    frequencies_T: Sequence[Frequencies], k: int, least_rate: float = 0.0
) -> tuple[Frequencies, ...]:
    """Return at most ``k`` rows, the hottest of all tables, each looked up more than ``least_rate`` times a sample."""
    rate = max(rate_of_rank(frequencies_T, k), least_rate)
    return tuple(f.above(rate / f.lookups_per_sample) for f in frequencies_T)
