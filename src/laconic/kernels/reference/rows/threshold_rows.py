"""Threshold: the largest entries of every row, compacted column by column, and where they were.

Laplace (0)
    ``m`` finite entries of a row are not 0; ``b`` is the mean of their magnitudes. Those are kept
    whose magnitude is at least ``-b ln(keep * D / m)``. A share ``keep * D / m`` of a Laplace
    distribution of scale ``b`` lies beyond that. If ``m`` is at most ``keep * D``, all are kept.
Top-k (1)
    The ``max(1, floor(keep * D + 1/2))`` entries of largest magnitude are kept; of equal ones those
    further left.

Zeros are never kept: they arrive as zeros anyway. NaN and infinities are always kept. The sum
behind ``b`` is in float64, in the order of the squares of ``quantize/grid.py``.

Shapes: ``B`` rows, ``D`` columns, ``K`` entries that are kept.
"""

from __future__ import annotations

import math

import numpy as np

from laconic.kernels.reference.blocks.batch import Array, check

_LANES = 8
_MOST = 2**32 - 1


def threshold_rows(x_BD: Array, keep: float, method: int, places: Array, values: Array) -> int:
    """Fill the first K of ``places`` and ``values``, and return K."""
    check(x_BD.size <= _MOST, "threshold_rows: more than 2^32 - 1 entries")
    check(0 < keep <= 1, "threshold_rows: keep must be above 0 and at most 1")
    check(method in (0, 1), "threshold_rows: method must be 0 or 1")
    room = min(len(places), len(values)) >= x_BD.size
    check(room, "threshold_rows: places and values need room for every entry")
    if not x_BD.size:
        return 0
    kept_BD = choose(x_BD, keep, method)
    columns_K, rows_K = np.nonzero(kept_BD.T)
    count = len(rows_K)
    places[:count] = columns_K * len(x_BD) + rows_K
    values[:count] = x_BD[rows_K, columns_K]
    return count


def choose(x_BD: Array, keep: float, method: int) -> Array:
    """Return the mask of what is kept."""
    kept_of = _laplace if method == 0 else _top_k
    kept_BD: Array = np.zeros(x_BD.shape, bool)
    if x_BD.size:
        kept_BD[:] = [kept_of(np.abs(row_D), keep) for row_D in x_BD]
    return kept_BD


def _laplace(size_D: Array, keep: float) -> Array:
    finite_D = np.isfinite(size_D)
    m, wanted = int((finite_D & (size_D > 0)).sum()), keep * len(size_D)
    threshold = 0.0
    if wanted < m:
        total = _sum(np.where(finite_D, size_D, 0).astype(np.float64))
        threshold = -(total / m) * math.log(wanted / m)
    reached_D: Array = (size_D > 0) & (size_D.astype(np.float64) >= threshold)
    return reached_D | ~finite_D


def _top_k(size_D: Array, keep: float) -> Array:
    k = max(1, int(keep * len(size_D) + 0.5))
    order_D = np.argsort(-np.where(np.isfinite(size_D), size_D, np.inf), kind="stable")
    kept_D: Array = ~np.isfinite(size_D)
    kept_D[order_D[:k]] = True
    kept_D &= size_D != 0
    return kept_D


def _sum(x_N: Array) -> float:
    lanes = np.zeros(_LANES)
    for eight in np.pad(x_N, (0, -len(x_N) % _LANES)).reshape(-1, _LANES):
        lanes += eight
    while len(lanes) > 1:
        lanes = lanes[0::2] + lanes[1::2]
    return float(lanes[0])
