"""The hottest rows of all tables together: one threshold for all of them.

A row of probability p is missed by ``b`` samples of ``l`` lookups each with probability ``(1 - p) ** (l b) = exp(-r b)``, so its *rate* is ``r =
-l ln(1 - p)``, nearly ``l p``. Rows of equal size compete for the same memory: the best ``k`` to copy are those with the highest
rates, whatever table they are in and however large the batch (``docs/papers/avoidance.md``, proposition 3). Shape legend: ``T`` tables,
``G`` runs.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from laconic.cost.frequencies import Frequencies

__all__ = ["hottest_of_all", "rate_of_rank"]


def rate_of_rank(frequencies_T: Sequence[Frequencies], k: int) -> float:
    """Rate that a row must exceed to be among the ``k`` hottest of all tables; 0 if all are.

    Rows of one run are all in or all out, so there may be fewer than ``k`` above it.
    """
    rate_G = np.concatenate([_rate_G(f) for f in frequencies_T])
    count_G = np.concatenate([f.count_G for f in frequencies_T])
    hottest = np.argsort(-rate_G, kind="stable")
    out = np.flatnonzero(np.cumsum(count_G[hottest]) > k)
    return float(rate_G[hottest[out[0]]]) if len(out) else 0.0


def hottest_of_all(
    frequencies_T: Sequence[Frequencies], k: int, least_rate: float = 0.0
) -> tuple[Frequencies, ...]:
    """Return at most ``k`` rows, the hottest of all tables, each with a rate above ``least_rate``."""
    rate = max(rate_of_rank(frequencies_T, k), least_rate)
    return tuple(f.only(_rate_G(f) > rate) for f in frequencies_T)


def _rate_G(frequencies: Frequencies) -> NDArray[np.float64]:
    with np.errstate(divide="ignore"):  # a row that every lookup hits
        return -frequencies.lookups_per_sample * np.log1p(-np.minimum(frequencies.probability_G, 1.0))
