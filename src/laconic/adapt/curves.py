"""What a table's bound saves and what it harms, as measured: the input of every choice of bounds.

Harm is an increase of the loss, as a share of it. Bytes and errors are measured at every bound, which is
cheap and exact; the loss only where its change is large enough to be seen. Between them lies one number,
the *sensitivity*: increase of the loss for each unit of error. A small error moves the loss in proportion to
its mean square (the linear part averages out over rows and samples), so measuring it once serves all bounds.
"""

from __future__ import annotations

from dataclasses import dataclass

from laconic.adapt.homogenization import REFERENCE_BOUND, TableClass, table_class
from laconic.errors import ConfigError

__all__ = ["Curve", "TableCurves"]


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
        """Increase of the loss at bound ``i``: the estimate and one standard error, to be careful where it is poor."""
        return (max(self.sensitivity, 0.0) + self.sensitivity_se) * self.error[i]


@dataclass(frozen=True, kw_only=True, slots=True)
class TableCurves:
    """Both directions of one table."""

    name: str
    rows: int

    forward: Curve
    backward: Curve

    homogenization: tuple[float, ...]
    """Distinct rows after / before quantizing, at each forward bound: 1 where no two rows become equal."""

    @property
    def homogenization_index(self) -> float:
        """At the bound where the SC'24 paper's classes are told apart."""
        return self.homogenization[self.forward.bounds.index(REFERENCE_BOUND)]

    @property
    def paper_class(self) -> TableClass:
        """Which of the SC'24 paper's three bounds the table would get."""
        return table_class(self.homogenization_index)
