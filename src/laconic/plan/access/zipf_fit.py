"""Zipf's law fitted to the rows that were looked up often enough to be ranked.

Rows are ranked by their own counts, so ranks of rare rows are chance; only rows with at least eight lookups are fitted.
Among these, the exponent has the greatest likelihood: the mean logarithm of the rank is what the law says. Ranks above
64 are taken in bins 1 % wide. Shape legend: ``G`` runs of equal counts, ``B`` bins of ranks.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from laconic.plan.access.access import Zipf

__all__ = ["fit_zipf", "zipf_shares"]

_LEAST_COUNT = 8
_LEAST_RANKS = 10
_LARGEST_EXPONENT = 16.0
_EXACT = 64
_BIN = 1.01

Floats = NDArray[np.float64]


def fit_zipf(rows_G: NDArray[np.int64], lookups_G: Floats) -> Zipf | None:
    """Fit runs of rows and lookups of each of their rows, by falling lookups; None where too few can be ranked."""
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
    """Share of the fitted rows' lookups that the law gives the first k rows, for every rank k; beyond 1 past the last."""
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
