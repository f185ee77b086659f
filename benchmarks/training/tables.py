"""The training benchmark as tables for people."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.table import Table

from benchmarks.figures_table import figures_table
from benchmarks.training.row import Row
from benchmarks.training.timing import Comparison

__all__ = ["render"]


def render(rows: Sequence[Row], comparisons: Sequence[Comparison]) -> RenderableType:
    """One table for each setting."""
    tables: list[RenderableType] = []
    timing = [row for row in rows if row.kind == "timing"]
    for rate in dict.fromkeys(row.rate_mbit for row in timing):
        here = [row for row in timing if row.rate_mbit == rate]
        tables.append(_timing_table(here, [c for c in comparisons if c.rate_mbit == rate]))
    for kind, make in (("bytes", _bytes_table), ("accuracy", _accuracy_table)):
        for data in dict.fromkeys(row.data for row in rows if row.kind == kind):
            tables.append(make(data, [row for row in rows if row.kind == kind and row.data == data]))
    return Group(*tables)


def _timing_table(rows: list[Row], comparisons: list[Comparison]) -> Table:
    matched = ", profile-matched" if rows[0].profile_matched else ""
    title = f"step time: {rows[0].hosts} hosts, {rows[0].rate_mbit:.0f} Mbit/s{matched}"
    table = figures_table(
        title, "method", "step", "communicating", "plain /", "laconic / this (95 %)", "sent per rank"
    )
    plain = next((row.step_ms for row in rows if row.method == "plain"), None)
    paired = {c.other: c for c in comparisons}
    for row in rows:
        c = paired.get(row.method)
        assert row.step_ms is not None, "timing rows have times"
        assert row.communication_share is not None, "and shares"
        table.add_row(
            row.method,
            f"{row.step_ms:.1f} ms",
            "" if row.method == "alone" else f"{row.communication_share:.1%}",
            f"{plain / row.step_ms:.2f}x" if plain else "",
            f"{c.ratio:.3f} ({c.low:.3f} - {c.high:.3f})" if c else "",
            _size(row.bytes_forward + row.bytes_backward + row.bytes_ids + row.bytes_dense),
        )
    return table


def _bytes_table(data: str, rows: list[Row]) -> Table:
    title = f"bytes per step and rank: {data}, {rows[0].hosts} ranks, 2,048 samples each, dimension 64"
    table = figures_table(title, "method", "rows", "ids", "gradients", "dense", "rows + ids", "gradients ")
    plain = next((row for row in rows if row.method == "plain"), None)
    for row in rows:
        ratios = ("", "")
        if plain is not None:
            forward = (plain.bytes_forward + plain.bytes_ids) / (row.bytes_forward + row.bytes_ids)
            ratios = (f"{forward:.1f}x fewer", f"{plain.bytes_backward / row.bytes_backward:.1f}x fewer")
        sizes = (row.bytes_forward, row.bytes_ids, row.bytes_backward, row.bytes_dense)
        table.add_row(row.method, *(_size(size) for size in sizes), *ratios)
    return table


def _accuracy_table(data: str, rows: list[Row]) -> Table:
    seeds = len({row.seed for row in rows})
    table = figures_table(
        f"accuracy: {data}, one epoch, {seeds} seed{'s' if seeds > 1 else ''}, paired",
        "method",
        "AUC",
        "AUC - plain",
        "standard error",
        "log loss",
    )
    plain = {row.seed: row.auc for row in rows if row.method == "plain"}
    for method in dict.fromkeys(row.method for row in rows):
        mine = [row for row in rows if row.method == method and row.auc is not None]
        differences = [row.auc - (plain.get(row.seed) or row.auc) for row in mine if row.auc is not None]
        error = statistics.stdev(differences) / len(differences) ** 0.5 if len(differences) > 1 else None
        table.add_row(
            method,
            f"{statistics.fmean(row.auc for row in mine if row.auc is not None):.5f}",
            f"{statistics.fmean(differences):+.5f}" if differences and method != "plain" else "",
            f"{error:.5f}" if error is not None and method != "plain" else "",
            f"{statistics.fmean(row.log_loss for row in mine if row.log_loss is not None):.5f}",
        )
    return table


def _size(size: float) -> str:
    return f"{size / 1e6:.2f} MB" if size >= 1e5 else f"{size / 1e3:.1f} kB"
