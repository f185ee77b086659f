"""Where rows may be rounded to the nearest value of the grid.

Within the same bound, rounding to the nearest takes a grid twice as wide as rounding without bias; on the same grid
it errs half as much (mean square). But a row whose values are all within the bound of zero then arrives as zero, in every step: nothing
tells its gradient that it has had an effect, and it is overtrained. So it is for tables that have next to no such rows.

Shape legend: ``R`` rows, ``D`` dimensions.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

__all__ = ["MOST_LOST", "may_be_nearest"]

MOST_LOST = 0.05
"""Share of looked-up rows that may arrive as zero. Book-Crossing's rare users and books are above it at all bounds
but the finest, and lose by rounding to the nearest; The Complete Journey's products are below it, and gain."""


def may_be_nearest(rows_RD: NDArray[np.float32], bounds: Sequence[float]) -> tuple[bool, ...]:
    """Whether at most ``MOST_LOST`` of the rows would arrive as zero, for each bound, a share of their range."""
    finite_RD = np.where(np.isfinite(rows_RD), rows_RD, 0.0)
    if not finite_RD.size:
        return (False,) * len(bounds)
    spread = float(finite_RD.max()) - float(finite_RD.min())
    largest_R = np.abs(finite_RD).max(axis=1)
    return tuple(float((largest_R <= bound * spread).mean()) <= MOST_LOST for bound in bounds)
