"""The benchmark of serving as tables for people: one for each model and batch, and one for what fits."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from rich.console import Group, RenderableType
from rich.table import Table

from benchmarks.results import figures_table
from benchmarks.serving.benchmark import Result
from benchmarks.serving.complexity import Fit
from benchmarks.serving.row import Row

__all__ = ["render"]


def render(result: Result) -> RenderableType:
    """Show rows that belong together next to each other."""
    tables = [_table(list(group)) for _, group in groupby(result.rows, key=_title)]
    return Group(*tables, *([_fits_table(result.fits)] if result.fits else []))


def _title(row: Row) -> str:
    return f"{row.model}: batch {row.batch}, one core"


def _table(rows: list[Row]) -> Table:
    table = figures_table(
        _title(rows[0]),
        "engine",
        "samples/s",
        "faster",
        "median",
        "99 %",
        "size",
        "of fp32",
        "NE",
        "change",
        "AUC",
    )
    first = rows[0]
    for row in rows:
        table.add_row(
            row.engine,
            f"{row.samples_per_s:,.0f}",
            f"{row.samples_per_s / first.samples_per_s:.2f}x",
            f"{row.p50_ms:.3f} ms",
            f"{row.p99_ms:.3f} ms",
            f"{row.size_bytes / 1e6:,.1f} MB",
            f"{row.size_bytes / first.size_bytes:.1%}",
            "" if row.ne is None else f"{row.ne:.5f}",
            "" if row.ne is None or first.ne is None else f"{row.ne / first.ne - 1:+.3%}",
            "" if row.auc is None else f"{row.auc:.5f}",
        )
    return table


def _fits_table(fits: Sequence[Fit]) -> Table:
    reference = fits[0]
    table = figures_table(
        f"what fits into the memory and latency of fp32: batch {reference.row.batch}, one core",
        *("model", "parameters", "more", "MFLOP/sample", "more", "size", "of it", "median", "of it", "fits"),
    )
    for fit in fits:
        row = fit.row
        table.add_row(
            "fp32 reference" if fit is reference else "laconic, int4 and int8",
            f"{fit.parameters / 1e6:,.0f} M",
            f"{fit.parameters / reference.parameters:.2f}x",
            f"{fit.flops / 1e6:.2f}",
            f"{fit.flops / reference.flops:.2f}x",
            f"{row.size_bytes / 1e6:,.0f} MB",
            f"{row.size_bytes / reference.row.size_bytes:.2f}",
            f"{row.p50_ms:.3f} ms",
            f"{row.p50_ms / reference.row.p50_ms:.2f}",
            "" if fit is reference else "yes" if fit.fits(reference) else "no",
        )
    return table
