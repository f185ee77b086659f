"""How far the number of distinct rows of a batch strays from its expectation.

Shape legend: ``G`` runs of equally likely rows.
"""

from __future__ import annotations

import math

import numpy as np

from laconic.cost.frequencies import Frequencies
from laconic.cost.needed_rows import distinct_rows, needed_G
from laconic.errors import ConfigError

__all__ = ["enough_rows", "strays_by", "variance_bound"]


def variance_bound(frequencies: Frequencies, lookups: float, correlation: float = 1.0) -> float:
    """Return ``sum of q (1 - q)``, a bound of the variance of U (negative association)."""
    q_G = needed_G(frequencies, lookups, correlation)
    return float(np.sum(frequencies.count_G * q_G * (1 - q_G)))


def strays_by(frequencies: Frequencies, lookups: float, failure: float, correlation: float = 1.0) -> float:
    """Distance t from E[U] that U exceeds upwards with a probability of at most ``failure``.

    The smaller of McDiarmid's ``sqrt(b / 2 ln(1 / failure))``, as a lookup changes U by one at
    most, and Bernstein's, which knows the variance: ``exp(-t^2 / (2 v + 2 t / 3)) = failure``.
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
    """Return rows of a buffer that a batch exceeds with a probability of at most ``failure``."""
    likely = distinct_rows(frequencies, lookups, correlation) + strays_by(
        frequencies, lookups, failure, correlation
    )
    return min(math.ceil(likely), math.ceil(lookups), frequencies.rows)
