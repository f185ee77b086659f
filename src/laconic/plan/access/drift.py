"""How far two parts of a data set look up different rows, beyond what chance makes of it.

Let a row have ``a`` of ``n`` lookups in the first part and ``b`` of ``m`` in the last. Total variation is half the sum
of ``|a / n - b / m|`` over all rows: between 0 and 1, but far from 0 for two halves of one shuffled set, whose rare
rows fall into one half or the other. Given ``c = a + b`` and no drift, ``a`` is binomial with ``f = n / (n + m)``, and the
expected ``|a / n - b / m|`` is ``(n + m) / (n m)`` times its mean deviation, which de Moivre's formula gives exactly. With the sum
of these, ``chance``, the distance is ``(TV - chance) / (1 - chance)``, as other indices are adjusted for chance.

Shape legend: ``N`` rows, or sampled ones with a weight; ``C`` distinct sums of their counts.
"""

from __future__ import annotations

from math import exp, floor, lgamma, log, log1p, pi, sqrt

import numpy as np
from numpy.typing import NDArray

from laconic.plan.access.access import Drift
from laconic.plan.access.tallies import Ints

__all__ = ["drift_between"]

_MANY = 4096  # from here on a binomial's mean deviation is that of a normal variable, within 1e-4 of itself
_LEAST_LEFT = 0.01


def drift_between(
    first_N: Ints, last_N: Ints, weight_N: NDArray[np.float64], lookups: tuple[int, int]
) -> Drift | None:
    """Compare counts in two parts of so many lookups; None where chance alone explains any distance."""
    n, m = lookups
    if not n or not m:
        return None
    share = n / (n + m)
    both_N = first_N + last_N
    both_C, which_N = np.unique(both_N, return_inverse=True)
    deviation_C = np.array([_mean_deviation(int(c), share) for c in both_C])
    variance_C = np.maximum(both_C * share * (1 - share) - deviation_C**2, 0.0)
    scale = (n + m) / n / m / 2
    found = scale * float(weight_N @ np.abs(first_N - both_N * share))
    chance = scale * float(weight_N @ deviation_C[which_N])
    spread = scale * sqrt(float(weight_N**2 @ variance_C[which_N]))
    left = 1 - chance
    if left < _LEAST_LEFT:
        return None
    return Drift(min(max((found - chance) / left, 0.0), 1.0), spread / left)


def _mean_deviation(count: int, share: float) -> float:
    """``E|x - count * share|`` of a binomial x."""
    if not count:
        return 0.0
    if count >= _MANY:
        return sqrt(2 * count * share * (1 - share) / pi)
    k = floor(count * share) + 1
    ways = lgamma(count + 1) - lgamma(k + 1) - lgamma(count - k + 1)
    return 2 * k * exp(ways + k * log(share) + (count - k + 1) * log1p(-share))
