"""The adaptation benchmark as tables for people."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.table import Table

from benchmarks.adaptation.encoders import EncoderRow
from benchmarks.adaptation.parts import bar
from benchmarks.adaptation.row import Row
from benchmarks.results import figures_table

__all__ = ["render"]


def render(rows: Sequence[Row], encoders: Sequence[EncoderRow]) -> RenderableType:
    """Two tables for each data set, of policies and of encoders, and two for each link."""
    tables: list[RenderableType] = []
    accuracy = [row for row in rows if row.auc_delta is not None]
    for data in dict.fromkeys(row.data for row in accuracy):
        tables.append(_accuracy(data, [row for row in accuracy if row.data == data]))
    for data in dict.fromkeys(row.data for row in encoders):
        tables.append(_encoders(data, [row for row in encoders if row.data == data]))
    timing = [row for row in rows if row.step_ms is not None]
    for rate in dict.fromkeys(row.rate_mbit for row in timing):
        there = [row for row in timing if row.rate_mbit == rate]
        tables += [_timing(rate, there), _parts(rate, there)]
    return Group(*tables)


def _accuracy(data: str, rows: list[Row]) -> Table:
    table = figures_table(
        f"{data}: one epoch, 4 rehearsed ranks, {rows[0].pairs} paired runs",
        "policy",
        "decay",
        "rows + ids",
        "gradients",
        "sent per step",
        "AUC - exact",
        "sd of pairs",
        "log loss - exact",
    )
    for row in rows:
        spread = "" if row.auc_delta_sd is None else f"{row.auc_delta_sd:.5f}"
        table.add_row(
            row.policy,
            row.decay,
            f"{row.ratio_forward:.1f}x",
            f"{row.ratio_backward:.1f}x",
            f"{(row.bytes_sent or 0) / 1e3:.1f} kB",
            f"{row.auc_delta:+.5f}",
            spread,
            f"{row.log_loss_delta:+.5f}",
        )
    return table


def _encoders(data: str, rows: list[EncoderRow]) -> Table:
    """Tables one by one with the smallest batches, all of them together with each size."""
    least = min(row.samples_per_rank for row in rows)
    table = figures_table(
        f"{data}: encoders of rows at the paper's bounds, 4 ranks, {least} samples a rank unless said",
        "table",
        "rows",
        "bound",
        "vector LZ",
        "Huffman",
        "hybrid",
        "LZ chosen",
        "BoundedRows",
        "distinct rows",
    )
    for row in rows:
        if row.table is not None and row.samples_per_rank > least:
            continue
        size = "" if row.samples_per_rank == least else f", {row.samples_per_rank} samples"
        table.add_row(
            row.table or f"all{size}",
            str(row.table_rows),
            "" if row.bound is None else f"{row.bound:g}",
            *(f"{ratio:.1f}x" for ratio in (row.vector_lz, row.huffman, row.hybrid)),
            f"{row.lz_blocks} of {row.lz_blocks + row.huffman_blocks}",
            *(f"{ratio:.1f}x" for ratio in (row.bounded_rows, row.distinct)),
        )
    return table


def _timing(rate: float | None, rows: list[Row]) -> Table:
    table = figures_table(
        f"step time: 2 hosts, {_where(rate)}",
        "policy",
        "step",
        "over the best other (95 %)",
        "not compressed",
    )
    for row in rows:
        ratio = row.ratio_to_best
        table.add_row(
            row.policy,
            f"{row.step_ms:.1f} ms",
            "" if ratio is None else f"{ratio[0]:.3f} ({ratio[1]:.3f} - {ratio[2]:.3f})",
            "" if row.bypassed_tables is None else str(row.bypassed_tables),
        )
    return table


def _parts(rate: float | None, rows: list[Row]) -> Table:
    """Bars as the paper's; parts that overlap are counted twice, so a bar may be longer than its step."""
    table = figures_table(
        f"parts of a step: 2 hosts, {_where(rate)}",
        "policy",
        "forward █",
        "backward ▓",
        "all-reduce ▒",
        "compute ░",
    )
    table.add_column("", justify="left", no_wrap=True)
    divided = [(row.policy, row.parts_ms) for row in rows if row.parts_ms is not None]
    longest = max((sum(parts.each()) for _, parts in divided), default=0.0)
    for policy, parts in divided:
        table.add_row(policy, *(f"{part:.1f} ms" for part in parts.each()), bar(parts, longest))
    return table


def _where(rate: float | None) -> str:
    return "loopback" if rate is None else f"{rate:.0f} Mbit/s"
