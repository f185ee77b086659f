"""The benchmark of serving as tables for people: one for each model and batch."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from rich.console import Group, RenderableType
from rich.table import Table

from laconic.bench.figures_table import figures_table
from laconic.bench.serving.row import Row

__all__ = ["render"]


def render(rows: Sequence[Row]) -> RenderableType:
    """Show rows that belong together next to each other."""
    return Group(*(_table(list(group)) for _, group in groupby(rows, key=_title)))


def _title(row: Row) -> str:
    return f"{row.model}: batch {row.batch}, one core"


def _table(rows: list[Row]) -> Table:
    table = figures_table(
        _title(rows[0]), "engine", "samples/s", "faster", "median", "99 %", "size", "NE", "AUC"
    )
    fp32 = rows[0]
    for row in rows:
        table.add_row(
            row.engine,
            f"{row.samples_per_s:,.0f}",
            f"{row.samples_per_s / fp32.samples_per_s:.2f}x",
            f"{row.p50_ms:.3f} ms",
            f"{row.p99_ms:.3f} ms",
            f"{row.size_bytes / 1e6:,.1f} MB",
            "" if row.ne is None else f"{row.ne:.5f}",
            "" if row.auc is None else f"{row.auc:.5f}",
        )
    return table
