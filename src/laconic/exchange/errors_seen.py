"""How far the gradients that owners apply are from those that were computed, table by table.

Shape legend: ``T`` tables, ``R`` rows, ``D`` dimensions.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from laconic.exchange.sent_rows import SentRows

__all__ = ["UpdateError", "cosine_T", "relative_error_T"]

Floats = NDArray[np.float64]


class UpdateError:
    """Sums of squares and products; add those of all ranks before dividing. Observes gradients."""

    def __init__(self, tables: int) -> None:
        self.sums_4T: Floats = np.zeros((4, tables))
        """Squares of exact, squares of applied, their product, squares of their difference."""

    def add(self, sent: SentRows) -> None:
        """Take the gradients that a rank sends; rows are left out."""
        if sent.direction == "backward":
            self.add_rows(sent.blocks.table_R, sent.blocks.rows_RD, sent.arrived_RD())

    def add_rows(self, table_R: NDArray[np.int64], exact_RD: NDArray[Any], applied_RD: NDArray[Any]) -> None:
        """Take rows of any kind."""
        exact_RD, applied_RD = exact_RD.astype(np.float64), applied_RD.astype(np.float64)
        tables = self.sums_4T.shape[1]
        for k, values_RD in enumerate(
            (exact_RD**2, applied_RD**2, exact_RD * applied_RD, (applied_RD - exact_RD) ** 2)
        ):
            self.sums_4T[k] += np.bincount(table_R, values_RD.sum(axis=1), tables)


def relative_error_T(sums_4T: Floats) -> Floats:
    """Mean square error beside the mean square; 0 for tables that nobody looked up."""
    error_T = np.zeros(sums_4T.shape[1])
    np.divide(sums_4T[3], sums_4T[0], out=error_T, where=sums_4T[0] > 0)
    return error_T


def cosine_T(sums_4T: Floats) -> Floats:
    """Cosine between exact and applied gradients, by table.

    It is 1 for tables that nobody looked up, and 0 where nothing was applied.
    """
    norms = np.sqrt(sums_4T[0] * sums_4T[1])
    cosine = np.zeros(len(norms))
    np.divide(sums_4T[2], norms, out=cosine, where=norms > 0)
    return np.where(sums_4T[0] > 0, cosine, 1.0)
