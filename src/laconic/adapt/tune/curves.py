"""What a table's bound saves and what it harms, as measured: the input of every choice of bounds.

Harm is an increase of the loss, as a share of it. Bytes and errors are measured at every bound,
which is cheap and exact; the loss only where its change is large enough to be seen. Between them
lies one number, the *sensitivity*: increase of the loss for each unit of error. A small error moves
the loss in proportion to its mean square (the linear part averages out over rows and samples), so
measuring it once serves all bounds.

For comparison there are the Homogenization Index of the SC'24 paper and its three classes of
tables: one whose rows become equal when they are quantized loses information, so it gets the small
bound; one whose rows stay apart gets the large one.

Shape legend: ``R`` rows, ``D`` dimensions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from laconic.errors import ConfigError

__all__ = [
    "CLASS_BOUNDS",
    "REFERENCE_BOUND",
    "Curve",
    "TableClass",
    "TableCurves",
    "homogenization_index",
    "table_class",
]

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


@dataclass(frozen=True, kw_only=True, slots=True)
class Curve:
    """One direction of one table."""

    bounds: tuple[float, ...]
    """Ascending; relative to the range of rows, to the root mean square of gradients."""

    bytes_sent: tuple[float, ...]
    """At each bound, by all ranks per step."""

    bytes_exact: float
    """The same rows as float32."""

    error: tuple[float, ...]
    """Mean square error of what arrives, as a share of its mean square, at each bound."""

    sensitivity: float
    """Increase of the loss, as a share of it, for an error of 1; may be negative by noise."""

    sensitivity_se: float
    """Standard error of it."""

    def __post_init__(self) -> None:
        if not len(self.bounds) == len(self.bytes_sent) == len(self.error):
            raise ConfigError(
                f"curves: expected as many bytes and errors as bounds, got {len(self.bytes_sent)} and "
                f"{len(self.error)} for {len(self.bounds)}"
            )

    def harm(self, i: int) -> float:
        """Return the increase of the loss at bound ``i``: the estimate plus one standard error."""
        return (max(self.sensitivity, 0.0) + self.sensitivity_se) * self.error[i]


@dataclass(frozen=True, kw_only=True, slots=True)
class TableCurves:
    """Both directions of one table."""

    name: str
    rows: int

    forward: Curve
    backward: Curve

    homogenization: tuple[float, ...]
    """Distinct rows after / before quantizing, at each bound of rows; 1: no two become equal."""

    @property
    def homogenization_index(self) -> float:
        """At the bound where the SC'24 paper's classes are told apart."""
        return self.homogenization[self.forward.bounds.index(REFERENCE_BOUND)]

    @property
    def paper_class(self) -> TableClass:
        """Which of the SC'24 paper's three bounds the table would get."""
        return table_class(self.homogenization_index)
