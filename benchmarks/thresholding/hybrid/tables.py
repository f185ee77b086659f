"""The benchmark as tables for people: one for each model."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import groupby

from rich.console import Group, RenderableType
from rich.table import Table

from benchmarks.results import figures_table
from benchmarks.thresholding.hybrid.row import Row

__all__ = ["render"]


def render(rows: Sequence[Row]) -> RenderableType:
    """Show rows that belong together next to each other."""
    return Group(*(_table(list(group)) for _, group in groupby(rows, key=_title)))


def _title(row: Row) -> str:
    rate = "loopback" if row.rate_mbit is None else f"{row.rate_mbit:g} Mbit/s"
    return f"{row.model}: {row.replicas} replicas of 2 parts, {row.samples:,} samples each; {row.hosts} hosts, {rate}"


def _table(rows: list[Row]) -> Table:
    table = figures_table(
        _title(rows[0]),
        "method",
        "step",
        "communicating",
        "time / plain (95 %)",
        "less time",
        "sent per host",
        "fewer",
    )
    plain = next(row for row in rows if row.method == "plain")
    for row in rows:
        sends = row.method != "alone"
        table.add_row(
            row.method,
            f"{row.ms:.1f} ms",
            f"{row.communication_share:.1%}" if sends else "",
            *_against_plain(row),
            f"{row.bytes_sent_per_host / 1e6:.2f} MB" if sends else "",
            f"{plain.bytes_sent_per_host / row.bytes_sent_per_host:.1f}x" if row.over_plain else "",
        )
    return table


def _against_plain(row: Row) -> tuple[str, str]:
    if row.over_plain is None:
        return "", ""
    mean, low, high = row.over_plain
    interval = "" if math.isnan(low) else f" ({low:.3f} - {high:.3f})"
    return f"{mean:.3f}{interval}", f"{1 - mean:.1%}"
