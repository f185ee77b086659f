"""The benchmark of sums as tables for people: one for each workload.

*At least* is the other end of the 95 % interval of times over those of dense.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import groupby

from rich.console import Group, RenderableType
from rich.table import Table

from benchmarks.reduction.row import Row
from benchmarks.results import figures_table

__all__ = ["render"]


def render(rows: Sequence[Row]) -> RenderableType:
    """Show rows that belong together next to each other."""
    return Group(*(_table(list(group)) for _, group in groupby(rows, key=_title)))


def _title(row: Row) -> str:
    rate = "loopback" if row.rate_mbit is None else f"{row.rate_mbit:g} Mbit/s"
    return f"{row.workload}: {row.sparsity:.1%} zeros, {row.supports} supports; {row.hosts} hosts, {rate}"


def _table(rows: list[Row]) -> Table:
    table = figures_table(
        _title(rows[0]),
        "method",
        "time",
        "time / dense (95 %)",
        "faster (at least)",
        "sent per host",
        "fewer",
        "exact",
    )
    dense = next((row for row in rows if row.method == "dense"), None)
    for row in rows:
        table.add_row(
            f"{row.method} ({row.way})" if row.way and row.way != row.method else row.method,
            f"{row.ms:.1f} ms",
            *_against_dense(row),
            _size(row.bytes_sent_per_host),
            f"{dense.bytes_sent_per_host / row.bytes_sent_per_host:.1f}x" if dense and dense != row else "",
            "yes" if row.exact else "no",
        )
    return table


def _against_dense(row: Row) -> tuple[str, str]:
    if row.over_dense is None:
        return "", ""
    mean, low, high = row.over_dense
    if math.isnan(low):  # of one repeat
        return f"{mean:.3f}", f"{1 / mean:.2f}x"
    return f"{mean:.3f} ({low:.3f} - {high:.3f})", f"{1 / mean:.2f}x ({1 / high:.2f}x)"


def _size(size: float) -> str:
    return f"{size / 1e6:.2f} MB" if size >= 1e5 else f"{size / 1e3:.1f} kB"
