"""The placement benchmark as tables for people."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.table import Table

from benchmarks.placement.row import Row
from benchmarks.placement.summary import Race, Summary, races_of, summarize
from benchmarks.results import figures_table

__all__ = ["render"]


def render(rows: Sequence[Row]) -> RenderableType:
    """One table of bytes for each data set, and one of times for each rate; all that was simulated; and what it comes to."""
    tables: list[RenderableType] = []
    for data in dict.fromkeys(row.data for row in rows if row.kind == "bytes"):
        tables.append(_bytes_table(data, [r for r in rows if r.kind == "bytes" and r.data == data]))
    timed = [row for row in rows if row.kind == "time"]
    for data, rate in dict.fromkeys((row.data, row.rate_mbit) for row in timed):
        tables.append(_time_table([r for r in timed if (r.data, r.rate_mbit) == (data, rate)]))
    if simulated := [row for row in rows if row.kind == "simulated"]:
        tables.append(_simulated_table(simulated))
    if timed:
        tables += [_races_table(races_of(rows)), _in_words(summarize(rows))]
    return Group(*tables)


def _bytes_table(data: str, rows: list[Row]) -> Table:
    table = figures_table(
        f"bytes per step and rank: {data}, exact",
        "ranks",
        "placement",
        "direction",
        "predicted",
        "measured",
        "error",
    )
    for row in rows:
        predicted, measured = row.predicted_bytes or 0.0, row.measured_bytes or 0.0
        table.add_row(
            str(row.hosts),
            row.placement,
            row.direction or "",
            f"{predicted / 1e3:,.1f} kB",
            f"{measured / 1e3:,.1f} kB",
            f"{predicted / measured - 1:+.1%}" if measured else "",
        )
    return table


def _time_table(rows: list[Row]) -> Table:
    alone = next(row.measured_ms or 0.0 for row in rows if row.placement == "alone")
    plain = next(row.measured_ms or 0.0 for row in rows if row.placement == "plain")
    title = f"step time: {rows[0].data}, {rows[0].hosts} hosts, {rows[0].rate_mbit:.0f} Mbit/s"
    table = figures_table(
        f"{title}, plain communicates {1 - alone / plain:.1%}",
        "placement",
        "codec",
        "predicted",
        "measured",
        "error",
        "plain /",
        "samples/s",
        "planned / (95 %)",
    )
    for row in rows:
        measured = row.measured_ms or 0.0
        predicted = row.predicted_ms
        table.add_row(
            row.placement,
            row.codec,
            "" if predicted is None else f"{predicted:.1f} ms",
            f"{measured:.1f} ms",
            "" if predicted is None else f"{predicted / measured - 1:+.1%}",
            f"{plain / measured:.2f}x",
            f"{row.samples_per_s:,.0f}",
            _interval(row.planned_over),
        )
    return table


def _interval(ratio: tuple[float, float, float] | None) -> str:
    return "" if ratio is None else "{:.3f} ({:.3f} - {:.3f})".format(*ratio)


def _simulated_table(rows: list[Row]) -> Table:
    table = figures_table(
        "laconic simulate against what was measured: bytes of embeddings per step and rank, and steps",
        "data",
        "ranks",
        "Mbit/s",
        "methods",
        "predicted",
        "measured",
        "error",
    )
    for row in rows:
        step = row.predicted_ms is not None
        predicted = (row.predicted_ms if step else row.predicted_bytes) or 0.0
        measured = (row.measured_ms if step else row.measured_bytes) or 0.0
        table.add_row(
            row.data,
            str(row.hosts),
            f"{row.rate_mbit:.0f}" if row.rate_mbit is not None else "",
            row.placement,
            *(f"{x:.1f} ms" if step else f"{x / 1e3:,.1f} kB" for x in (predicted, measured)),
            f"{predicted / measured - 1:+.1%}" if measured else "",
        )
    return table


def _races_table(races: Sequence[Race]) -> Table:
    table = figures_table(
        "how much of a step plain training waits; its step over the plan's, and that over the fastest other's",
        "data",
        "Mbit/s",
        "waits",
        "codec",
        "plain /",
        "other",
        "/ other",
        "in turns (95 %)",
    )
    for race in races:
        table.add_row(
            race.data,
            f"{race.rate_mbit:.0f}",
            f"{race.communicates:.1%}",
            race.codec,
            f"{race.faster_than_plain:.2f}x",
            race.other,
            f"{race.over_other:.3f}",
            _interval(race.interval),
        )
    return table


def _in_words(summary: Summary) -> str:
    return (
        f"Steps were predicted within {summary.median_error:.1%} (median) and {summary.worst_error:.1%} (worst) of {summary.predictions}; "
        f"bytes within {summary.bytes_error:.1%}. Of {summary.pairs} pairs of placements that surely differ by more than a tenth, "
        f"{summary.ranked_right} were ranked as they are."
    )
