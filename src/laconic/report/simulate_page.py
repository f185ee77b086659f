"""The page of ``laconic simulate``: where each method pays, and what the best choice takes."""

from __future__ import annotations

from html import escape

from laconic.numerals import bytes_text, milliseconds, plain, times
from laconic.report.document import cards, cell, chart, document, facts, legend, section, table
from laconic.report.gain_map import gain_map, method_colors, stops_chart
from laconic.report.simulate_result import SimulatedCell, SimulateResult

__all__ = ["render_simulated"]

_STOPS = (
    "A method pays where it makes the best step at least one percent faster: where its map below says 1.01 or more. It stops above its full line; "
    "a triangle at the upper edge: it still pays at the largest bandwidth. Where it pays only from some bandwidth on, a dotted line shows where "
    "that begins; hover says all. No point: it never pays."
)
_GAINS = (
    "Best step without the method / best step with it, all others free to be on or off. Blue: it pays; orange: it costs more than it saves; "
    "no color: no matter. Methods replace each other: what one gains alone, on hover, may be far more."
)


def render_simulated(result: SimulateResult) -> str:
    """Lay out a result as HTML."""
    colors = method_colors(len(result.methods))
    keys = [("━", color, name) for color, (name, _) in zip(colors, result.methods, strict=True)]
    stops = legend(keys, ["stops"]) + chart(
        "stops", stops_chart(result), "Bandwidth at which each method stops paying, by number of ranks"
    )
    maps = "".join(
        f"<div><h3>{escape(name)}: {escape(what)}</h3>"
        + chart(f"gain-{number}", gain_map(result, number), f"Gain of {name}, ranks by bandwidth")
        + "</div>"
        for number, (name, what) in enumerate(result.methods)
    )
    return document(
        result.title,
        f"<header><h1>{escape(result.title)}</h1>{facts(result.facts)}</header>{_headline(result)}"
        + section("Where each method stops paying", stops, _STOPS)
        + section("Gain of each method", f'<div class="pair">{maps}</div>', _GAINS)
        + section(
            "Best choices",
            _choices(result),
            "Of one rank and step. Ids include the messages that announce sizes.",
        ),
    )


def _headline(result: SimulateResult) -> str:
    def speedup(cell: SimulatedCell) -> float:
        return cell.off_ms / cell.best_ms

    most, least = max(result.cells, key=speedup), min(result.cells, key=speedup)
    return cards(
        "<b>Simulated</b>: the best choice of methods against all methods off",
        [
            (
                times(speedup(each)),
                what,
                f"{_where(each)}: {milliseconds(each.off_ms)} → {milliseconds(each.best_ms)}",
            )
            for each, what in ((most, "faster at most"), (least, "at least"))
        ],
    )


def _where(each: SimulatedCell) -> str:
    return f"{each.ranks:,} ranks, {plain(each.gbps)} Gbit/s"


def _choices(result: SimulateResult) -> str:
    names = (
        "ranks",
        "Gbit/s",
        "all off",
        "best",
        "methods",
        "wire",
        "codecs",
        "ids",
        "rows",
        "dense",
        "hot rows",
    )
    rows = [
        [
            f"{each.ranks:,}",
            plain(each.gbps),
            milliseconds(each.off_ms),
            cell(milliseconds(each.best_ms), times(each.off_ms / each.best_ms)),
            escape(each.best),
            milliseconds(each.wire_ms),
            milliseconds(each.codec_ms),
            bytes_text(each.bytes.ids),
            bytes_text(each.bytes.rows),
            bytes_text(each.bytes.dense),
            cell(bytes_text(each.bytes.hot), f"{each.hot_rows:,} rows" if each.hot_rows else ""),
        ]
        for each in result.cells
    ]
    return table(names, rows, "cells")
