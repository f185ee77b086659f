"""The thresholding benchmark as tables for people."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.table import Table

from benchmarks.results import figures_table
from benchmarks.thresholding.row import Row

__all__ = ["render"]


def render(rows: Sequence[Row]) -> RenderableType:
    """One table for each data set, form and number of workers."""
    keys = dict.fromkeys((row.data, row.form, row.workers) for row in rows)
    return Group(*(_table([row for row in rows if (row.data, row.form, row.workers) == key]) for key in keys))


def _table(rows: list[Row]) -> Table:
    first = rows[0]
    table = figures_table(
        f"{first.data}: {first.form}, {first.workers} workers, {first.pairs} pairs",
        "dropped",
        "kept",
        "bytes",
        "test loss",
        "loss / plain - 1 (s.e.)",
        "AUC - plain",
    )
    for row in rows:
        error = "" if row.loss_change_se is None else f" ({row.loss_change_se:.3%})"
        table.add_row(
            row.case,
            f"{row.kept:.1%}",
            f"{row.ratio:.1f}x fewer",
            f"{row.log_loss:.5f}",
            f"{row.loss_change:+.3%}{error}",
            f"{row.auc_change:+.5f}",
        )
    return table
