"""Estimates from counts of single rows: the tail, Zipf's law, and drift.

**Tail.** Rows that are not counted one by one become runs of rows that are looked up about equally
often.

**Zipf's law** is fitted to the rows that were looked up often enough to be ranked. Rows are ranked
by their own counts, so ranks of rare rows are chance; only rows with at least eight lookups are
fitted. Among these, the exponent has the greatest likelihood: the mean logarithm of the rank is
what the law says. Ranks above 64 are taken in bins 1 % wide.

**Drift** is how far two thirds of a data set look up different rows, beyond chance. Let a row have
``a`` of ``n`` lookups in the first third and ``b`` of ``m`` in the last. Total
variation is half the sum of ``|a / n - b / m|`` over all rows: between 0 and 1, but far from 0 for
two halves of one shuffled set, whose rare rows fall into one half or the other. Given ``c = a + b``
and no drift, ``a`` is binomial with ``f = n / (n + m)``, and the expected ``|a / n - b / m|`` is
``(n + m) / (n m)`` times its mean deviation, which de Moivre's formula gives exactly. With the sum
of these, ``chance``, the distance is ``(TV - chance) / (1 - chance)``, as other indices are
adjusted for chance.

Shape legend: ``S`` sampled ids of the tail, ``R`` runs of the tail, ``G`` runs of equal counts,
``B`` bins of ranks, ``N`` rows, or sampled ones with a weight, ``C`` distinct sums of their counts.
"""

from __future__ import annotations

from math import exp, floor, lgamma, log, log1p, pi, sqrt

import numpy as np
from numpy.typing import NDArray

from laconic.plan.access.access import DistinctRows, Drift, Zipf
from laconic.plan.access.table_counter import Ints

__all__ = ["allot", "coarse", "drift_between", "fit_zipf", "tail_runs", "tail_size", "zipf_shares"]

Floats = NDArray[np.float64]
_FINE = 64
_SIGMAS = 5
_LEAST_COUNT = 8
_LEAST_RANKS = 10
_LARGEST_EXPONENT = 16.0
_EXACT = 64
_BIN = 1.01
_MANY = 4096  # from here on a binomial's mean deviation is that of a normal variable, within 1e-4 of itself
_LEAST_LEFT = 0.01


def coarse(values: Ints) -> Ints:
    """Round down to six binary digits: exact below 64, within a 32nd above."""
    _, digits = np.frexp(values.astype(np.float64))
    shift = np.maximum(digits.astype(np.int64) - (_FINE.bit_length() - 1), 0)
    return (values >> shift) << shift


def allot(total: int, weights: Floats) -> Ints:
    """Divide a whole number in proportion to weights; the largest remainders are rounded up."""
    if not weights.size:
        return np.empty(0, dtype=np.int64)
    share = weights / weights.sum() * total
    part: Ints = np.floor(share).astype(np.int64)
    rest = total - int(part.sum())
    part[np.argsort(part - share, kind="stable")[: max(rest, 0)]] += 1
    part[int(np.argmax(part))] += total - int(part.sum())  # floating point, should it ever be off by more
    return part


def tail_size(sampled: int, chance: float, head: int, rows: int, lookups: int) -> DistinctRows:
    """Estimate how many rows were looked up: ``head``, and others that ``sampled`` are drawn from.

    ``lookups`` of the tail bound its rows from above, and from below by one where there are any.
    The interval solves ``(sampled - x) ** 2 <= 25 x`` for the expected number x, as is right for a
    Poisson variable.
    """
    most = min(rows - head, lookups)
    least = min(1, most)
    middle = sampled + _SIGMAS**2 / 2
    reach = _SIGMAS * np.sqrt(sampled + _SIGMAS**2 / 4)
    low, mean, high = (
        head + int(np.clip(round(x / chance), least, most)) for x in (middle - reach, sampled, middle + reach)
    )
    return DistinctRows(mean, low, high)


def tail_runs(count_S: Ints, rows: int, lookups: int) -> tuple[Ints, Ints]:
    """Spread ``rows`` and ``lookups`` like the counts of sampled ids; both sums are exact."""
    if not rows:
        return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
    if not count_S.size:
        return np.array([rows]), np.array([lookups])
    rising_S = np.sort(count_S)
    _, start_R, size_R = np.unique(coarse(rising_S), return_index=True, return_counts=True)
    mean_R = np.add.reduceat(rising_S, start_R) / size_R
    rows_R = allot(rows, size_R.astype(np.float64))
    some = rows_R > 0
    rows_R, mean_R = rows_R[some], mean_R[some]
    beyond_one = rows_R * (mean_R - 1)
    lookups_R = rows_R + allot(lookups - rows, beyond_one if beyond_one.any() else rows_R.astype(np.float64))
    order = np.argsort(-lookups_R / rows_R, kind="stable")
    return rows_R[order], lookups_R[order]


def fit_zipf(rows_G: Ints, lookups_G: Floats) -> Zipf | None:
    """Fit runs of rows, by falling lookups of a row; None where too few can be ranked."""
    often = lookups_G >= _LEAST_COUNT
    rows_G, lookups_G = rows_G[often], lookups_G[often]
    ranks = int(rows_G.sum())
    if ranks < _LEAST_RANKS:
        return None
    edge_B = _edges(ranks)
    reached_G = np.concatenate([[0], np.cumsum(rows_G)])
    found_G = np.concatenate([[0.0], np.cumsum(rows_G * lookups_G)])
    share_B = np.diff(np.interp(edge_B, reached_G, found_G)) / found_G[-1]
    middle_B, width_B = _middles(edge_B)
    mean_log = float(share_B @ np.log(middle_B))
    low, high = 0.0, _LARGEST_EXPONENT
    while high - low > 1e-9:
        exponent = (low + high) / 2
        law_B = _law(middle_B, width_B, exponent)
        low, high = (exponent, high) if law_B @ np.log(middle_B) > mean_log else (low, exponent)
    exponent = (low + high) / 2
    difference_B = np.cumsum(share_B) - np.cumsum(_law(middle_B, width_B, exponent))
    return Zipf(exponent, float(np.abs(difference_B).max()), ranks)


def zipf_shares(zipf: Zipf, ranks: Floats) -> Floats:
    """Share of the fitted rows' lookups that the law gives the first k rows, for every k."""
    edge_B = _edges(max(int(ranks.max(initial=1)), zipf.ranks))
    law_B = np.concatenate([[0.0], np.cumsum(_law(*_middles(edge_B), zipf.exponent))])
    shares: Floats = np.interp(ranks, edge_B, law_B / np.interp(zipf.ranks, edge_B, law_B))
    return shares


def _edges(ranks: int) -> Floats:
    """Lay out the ends of bins, from 0 to ``ranks``: rank k alone is the bin from k - 1 to k."""
    steps = np.arange(np.ceil(np.log(max(ranks / _EXACT, 1)) / np.log(_BIN)))
    wide = np.unique(np.round(_EXACT * _BIN**steps))
    edges: Floats = np.concatenate([np.arange(_EXACT), wide, [ranks]]).astype(np.float64)
    return np.unique(edges[edges <= ranks])


def _middles(edge_B: Floats) -> tuple[Floats, Floats]:
    low, high = edge_B[:-1] + 0.5, edge_B[1:] + 0.5
    alone = np.diff(edge_B) == 1
    return np.where(alone, edge_B[1:], np.sqrt(low * high)), np.diff(edge_B)


def _law(middle_B: Floats, width_B: Floats, exponent: float) -> Floats:
    weight_B: Floats = width_B * middle_B**-exponent
    weight_B /= weight_B.sum()
    return weight_B


def drift_between(
    first_N: Ints, last_N: Ints, weight_N: NDArray[np.float64], lookups: tuple[int, int]
) -> Drift | None:
    """Compare counts in two thirds with ``lookups`` lookups; None if chance explains everything."""
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
