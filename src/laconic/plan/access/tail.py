"""What is not counted row by row, as runs of rows that are looked up about equally often.

Shape legend: ``S`` sampled ids of the tail, ``R`` runs.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from laconic.plan.access.access import Distinct
from laconic.plan.access.tallies import Ints

__all__ = ["allot", "coarse", "tail_runs", "tail_size"]

_FINE = 64
_SIGMAS = 5


def coarse(values: Ints) -> Ints:
    """Round down to six binary digits: exact below 64, within a 32nd part above."""
    _, digits = np.frexp(values.astype(np.float64))
    shift = np.maximum(digits.astype(np.int64) - (_FINE.bit_length() - 1), 0)
    return (values >> shift) << shift


def allot(total: int, weights: NDArray[np.float64]) -> Ints:
    """Divide a whole number in proportion to weights: each part is rounded down, largest remainders up."""
    if not weights.size:
        return np.empty(0, dtype=np.int64)
    share = weights / weights.sum() * total
    part: Ints = np.floor(share).astype(np.int64)
    rest = total - int(part.sum())
    part[np.argsort(part - share, kind="stable")[: max(rest, 0)]] += 1
    part[int(np.argmax(part))] += total - int(part.sum())  # floating point, should it ever be off by more
    return part


def tail_size(sampled: int, chance: float, head: int, rows: int, lookups: int) -> Distinct:
    """Rows that were looked up, of which ``head`` are known and ``sampled`` others were drawn with a chance.

    ``lookups`` of the tail bound its rows from above, and from below by one where there are any. The interval solves
    ``(sampled - x) ** 2 <= 25 x`` for the expected number x, as is right for a Poisson variable.
    """
    most = min(rows - head, lookups)
    least = min(1, most)
    middle = sampled + _SIGMAS**2 / 2
    reach = _SIGMAS * np.sqrt(sampled + _SIGMAS**2 / 4)
    low, mean, high = (
        head + int(np.clip(round(x / chance), least, most)) for x in (middle - reach, sampled, middle + reach)
    )
    return Distinct(mean, low, high)


def tail_runs(count_S: Ints, rows: int, lookups: int) -> tuple[Ints, Ints]:
    """Spread ``rows`` and ``lookups`` like the counts of sampled ids: rows and lookups of every run, both exact sums."""
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
