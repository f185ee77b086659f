"""Curves with round figures: bytes halve from bound to bound, errors are known."""

from __future__ import annotations

from laconic.adapt.tune.choose import choose
from laconic.adapt.tune.curves import Curve, TableCurves
from laconic.adapt.tune.measure import Measured

ROW_BOUNDS = (0.01, 0.03, 0.1)
GRADIENT_BOUNDS = (0.25, 0.5)


def rows_curve(sensitivity=0.04, se=0.0, error=(0.0025, 0.01, 0.04)):
    return Curve(
        bounds=ROW_BOUNDS, bytes_sent=(400.0, 200.0, 100.0), bytes_exact=1600.0,
        error=error, sensitivity=sensitivity, sensitivity_se=se,
    )  # fmt: skip


def gradients_curve(sensitivity=0.001, error=(0.01, 0.04)):
    return Curve(
        bounds=GRADIENT_BOUNDS, bytes_sent=(300.0, 150.0), bytes_exact=1200.0,
        error=error, sensitivity=sensitivity, sensitivity_se=0.0,
    )  # fmt: skip


def table(name="t", *, rows=1000, forward=None, backward=None, homogenization=(1.0, 0.75, 0.25)):
    return TableCurves(
        name=name, rows=rows, forward=forward or rows_curve(), backward=backward or gradients_curve(),
        homogenization=homogenization,
    )  # fmt: skip


def tuned_of(tables, budget=0.001):
    """Return what is chosen for these tables."""
    measured = Measured(tuple(tables), ranks=4, steps=300, loss=0.48125)
    return choose(measured, "run.toml", budget)
