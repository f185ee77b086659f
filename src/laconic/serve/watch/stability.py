"""Population stability index: how much a distribution over bins has moved away from a reference.

::

    PSI = sum over bins of (p - q) ln(p / q)

Without drift, PSI times ``1 / (1/n + 1/m)`` is distributed as chi square with bins - 1 degrees of freedom, for n samples now and m in the
reference. ``chance`` is what that explains, so that small windows of many features do not cry wolf.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Bins", "chance", "psi"]

Counts = NDArray[np.int64]

_SURE = 5.0
"""Standard deviations: one false alarm in some millions of looks."""


def psi(now_K: Counts, reference_K: Counts) -> float:
    """Of two histograms; half a count is added everywhere, so that an empty bin is not infinite."""
    p_K = (now_K + 0.5) / (now_K.sum() + 0.5 * now_K.size)
    q_K = (reference_K + 0.5) / (reference_K.sum() + 0.5 * now_K.size)
    return float(((p_K - q_K) * np.log(p_K / q_K)).sum())


def chance(now_K: Counts, reference_K: Counts) -> float:
    """PSI that is exceeded without drift hardly ever: the chi-square quantile by Wilson and Hilferty."""
    freedom = now_K.size - 1
    now, reference = int(now_K.sum()), int(reference_K.sum())
    if freedom < 1 or not now or not reference:
        return math.inf
    spread = 2 / (9 * freedom)
    quantile = freedom * (1 - spread + _SURE * math.sqrt(spread)) ** 3
    return quantile * (1 / now + 1 / reference)


class Bins:
    """Bins of about equal mass in the reference, by value; a value that is frequent has its own."""

    def __init__(self, edges: NDArray[Any], reference_K: Counts) -> None:
        self.edges, self.reference_K = edges, reference_K

    @classmethod
    def learnt(cls, reference_N: NDArray[Any], most: int) -> Bins:
        """Make at most so many, from values."""
        wanted = np.linspace(0, 1, most + 1)[1:-1]
        edges = (
            np.unique(np.quantile(reference_N, wanted, method="lower")) if reference_N.size else np.empty(0)
        )
        return cls(edges, _histogram(edges, reference_N))

    def count(self, values_N: NDArray[Any]) -> Counts:
        """Histogram over these bins."""
        return _histogram(self.edges, values_N)


def _histogram(edges: NDArray[Any], values_N: NDArray[Any]) -> Counts:
    return np.bincount(np.searchsorted(edges, values_N, side="right"), minlength=edges.size + 1)
