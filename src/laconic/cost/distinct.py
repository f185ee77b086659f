"""How many distinct rows a batch needs: the expectation, and how far the number strays from it.

``b`` independent lookups miss a row of probability ``p`` with probability ``(1 - p) ** b``, so::

    q = 1 - (1 - p) ** b          it is needed
    E[U] = sum of q over rows     distinct rows

Lookups of real batches are not quite independent: bags repeat an id, neighbors in time share ids. We describe that by one
measured number, the *correlation* c: the batch needs as many distinct rows as ``b / c`` independent lookups
would. 1 is independence; below 1 a batch is more diverse than chance, as one drawn without
replacement. The assumption is that one c serves all rows of a table, hot or not, and all batch sizes near the one that
was measured. ``docs/papers/avoidance.md`` has the proofs, and the errors on real data.
Shape legend: ``G`` runs of equally likely rows.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from laconic.cost.frequencies import Frequencies
from laconic.errors import ConfigError

__all__ = ["correlation_of", "distinct_rows", "enough_rows", "needed_G", "strays_by", "variance_bound"]

Floats = NDArray[np.float64]
_BISECTIONS = 100


def needed_G(frequencies: Frequencies, lookups: float, correlation: float = 1.0) -> Floats:
    """Probability that some of so many lookups hit a given row of each run."""
    if not (lookups >= 0 and 0 < correlation < math.inf):  # NaN neither
        raise ConfigError(
            f"distinct: expected lookups >= 0 and a correlation > 0, got {lookups!r} and {correlation!r}"
        )
    if lookups == 0:
        return np.zeros(len(frequencies.count_G))
    with np.errstate(divide="ignore"):  # a row that every lookup hits
        log_missed = np.log1p(-np.minimum(frequencies.probability_G, 1.0))
    needed: Floats = -np.expm1(lookups / correlation * log_missed)
    return needed


def distinct_rows(frequencies: Frequencies, lookups: float, correlation: float = 1.0) -> float:
    """Compute E[U]."""
    return float(np.sum(frequencies.count_G * needed_G(frequencies, lookups, correlation)))


def variance_bound(frequencies: Frequencies, lookups: float, correlation: float = 1.0) -> float:
    """``sum of q (1 - q)``, which the variance of U does not exceed: that rows are needed is negatively associated."""
    q_G = needed_G(frequencies, lookups, correlation)
    return float(np.sum(frequencies.count_G * q_G * (1 - q_G)))


def strays_by(frequencies: Frequencies, lookups: float, failure: float, correlation: float = 1.0) -> float:
    """Distance t from E[U] that U exceeds upwards with a probability of at most ``failure``.

    The smaller of McDiarmid's ``sqrt(b / 2 ln(1 / failure))``, as a lookup changes U by one at most, and
    Bernstein's, which knows the variance: ``exp(-t^2 / (2 v + 2 t / 3)) = failure``.
    """
    if not 0 < failure < 1:
        raise ConfigError(f"distinct.failure: expected a probability between 0 and 1, got {failure!r}")
    log_failure = -math.log(failure)
    by_differences = math.sqrt(lookups / correlation * log_failure / 2)
    variance = variance_bound(frequencies, lookups, correlation)
    third = log_failure / 3
    by_variance = third + math.sqrt(third * third + 2 * variance * log_failure)
    return min(by_differences, by_variance)


def enough_rows(
    frequencies: Frequencies, lookups: float, failure: float = 1e-9, correlation: float = 1.0
) -> int:
    """Rows that a buffer needs so that a batch does not fit with a probability of at most ``failure``."""
    likely = distinct_rows(frequencies, lookups, correlation) + strays_by(
        frequencies, lookups, failure, correlation
    )
    return min(math.ceil(likely), math.ceil(lookups), frequencies.rows)


def correlation_of(frequencies: Frequencies, lookups: float, distinct: float) -> float:
    """Find the correlation at which so many lookups have so many distinct rows, as was measured.

    1 where independent lookups do as well, as in a table so small that any batch has all of its rows. Between 1e-3 and 1e6: a batch
    with a row that these frequencies exclude fits none.
    """
    if not 0 <= distinct <= lookups:
        raise ConfigError(
            f"distinct: expected at most as many distinct rows as lookups, {lookups!r}, got {distinct!r}"
        )
    if math.isclose(distinct_rows(frequencies, lookups), distinct, rel_tol=1e-6):
        return 1.0
    low, high = math.log(1e-3), math.log(1e6)
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        if distinct_rows(frequencies, lookups, math.exp(middle)) > distinct:
            low = middle
        else:
            high = middle
    return math.exp(high)
