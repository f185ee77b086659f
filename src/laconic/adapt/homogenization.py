"""The Homogenization Index of the SC'24 paper, and its three classes of tables.

A table whose rows become equal when they are quantized loses information, so it gets the small bound; one
whose rows stay apart gets the large one.

Shape legend: ``R`` rows, ``D`` dimensions.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

__all__ = ["CLASS_BOUNDS", "REFERENCE_BOUND", "TableClass", "homogenization_index", "table_class"]

TableClass = Literal["large", "medium", "small"]

CLASS_BOUNDS: dict[TableClass, float] = {"large": 0.05, "medium": 0.03, "small": 0.01}
"""Bound of each class, relative to the range."""

REFERENCE_BOUND = 0.03
"""At which tables are classed: the bound of the middle class."""

_KEPT_APART, _MERGED = 0.99, 0.5


def homogenization_index(rows_RD: NDArray[np.float32], bound: float) -> float:
    """Distinct rows after quantizing / before, at a bound relative to the range; 1 for no rows."""
    if not len(rows_RD):
        return 1.0
    distinct_RD = np.unique(rows_RD, axis=0)
    spread = float(distinct_RD.max()) - float(distinct_RD.min())
    if not spread:
        return 1.0
    codes_RD = np.rint(distinct_RD / (2 * bound * spread)).astype(np.int64)
    return len(np.unique(codes_RD, axis=0)) / len(distinct_RD)


def table_class(index: float) -> TableClass:
    """Class of a table with this index at the reference bound."""
    if index >= _KEPT_APART:
        return "large"
    return "small" if index < _MERGED else "medium"
