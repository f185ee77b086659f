"""The page of ``laconic simulate``: where each method pays, and what the best methods take."""

from __future__ import annotations

import math
from html import escape
from typing import Any

from laconic.numerals import bytes_text, milliseconds, plain, times
from laconic.page import Figure, Page, cell, chart, legend, pair, section, table
from laconic.plan.simulate import paying_spans
from laconic.plan.simulate_result import SimulatedCell, SimulateResult
from laconic.report.charts import columns_axis, heat, logarithmic, method_color, names_axis, scatter

__all__ = ["simulate_page"]

_FULL_COLOR = 1.6  # octaves: a step three times as fast, or a third
_STOPS = (
    "A method pays where it makes the best step at least one percent faster: where its map below says 1.01 or more. It stops above its full line; "
    "a triangle at the upper edge: it still pays at the largest bandwidth. Where it pays only from some bandwidth on, a dotted line shows where "
    "that begins; hover says all. No point: it never pays."
)
_GAINS = (
    "Best step without the method / best step with it, all others free to be on or off. Blue: it pays; orange: it costs more than it saves; "
    "no color: no matter. Methods replace each other: what one gains alone, on hover, may be far more."
)


def simulate_page(result: SimulateResult) -> Page:
    """Make the page of a simulation."""
    keys = [("━", color, name) for color, (name, _) in zip(_colors(result), result.methods, strict=True)]
    what = "Bandwidth at which each method stops paying, by number of ranks"
    stops = legend(keys, ["stops"]) + chart("stops", _stops_chart(result), what)
    maps = (
        f"<div><h3>{escape(name)}: {escape(what)}</h3>"
        + chart(f"gain-{number}", _gain_map(result, number), f"Gain of {name}, ranks by bandwidth")
        + "</div>"
        for number, (name, what) in enumerate(result.methods)
    )
    most, least = max(result.cells, key=_speedup), min(result.cells, key=_speedup)
    return Page(
        title=result.title,
        facts=result.facts,
        intro="<b>Simulated</b>: the best choice of methods against all methods off",
        cards=[
            (
                times(_speedup(each)),
                what,
                f"{each.ranks:,} ranks, {plain(each.gbps)} Gbit/s: "
                f"{milliseconds(each.off_ms)} → {milliseconds(each.best_ms)}",
            )
            for each, what in ((most, "faster at most"), (least, "at least"))
        ],
        sections=[
            section("Where each method stops paying", stops, _STOPS),
            section("Gain of each method", pair(maps), _GAINS),
            section(
                "Best choices",
                _cells(result),
                "Of one rank and step. Ids include the messages that announce sizes.",
            ),
        ],
    )


def _speedup(each: SimulatedCell) -> float:
    return each.off_ms / each.best_ms


def _colors(result: SimulateResult) -> list[str]:
    """Return a color for each method."""
    count = len(result.methods)
    return [method_color(index + 1, count + 2) for index in range(count)]


def _cells(result: SimulateResult) -> str:
    names = [
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
    ]
    rows = [
        [
            f"{each.ranks:,}",
            plain(each.gbps),
            milliseconds(each.off_ms),
            cell(milliseconds(each.best_ms), times(_speedup(each))),
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


def _gain_map(result: SimulateResult, method: int) -> Figure:
    """Draw the gain of a method, ranks downwards and bandwidth to the right."""
    cells = [[result.cell(ranks, gbps) for gbps in result.gbps] for ranks in result.ranks]
    gains = [[each.gains[method] for each in row] for row in cells]
    trace = heat(
        [[max(-_FULL_COLOR, min(_FULL_COLOR, math.log2(gain))) for gain in row] for row in gains],
        [[f"{gain:.2f}" for gain in row] for row in gains],
        [[_hover(each, method) for each in row] for row in cells],
        zmin=-_FULL_COLOR,
        zmax=_FULL_COLOR,
        colorscale=[[0, "--backward"], [0.5, "--raised"], [1, "--forward"]],
        showscale=False,
        xgap=1,
        ygap=1,
        textfont={"size": 11, "color": "--ink"},
    )
    layout = {
        "height": 90 + 26 * len(result.ranks),
        "xaxis": {"title": {"text": "Gbit/s"}, **columns_axis([plain(gbps) for gbps in result.gbps])},
        "yaxis": {**names_axis([f"{ranks:,}" for ranks in result.ranks]), "title": {"text": "ranks"}},
    }
    return {"data": [trace], "layout": layout}


def _hover(each: SimulatedCell, method: int) -> str:
    return (
        f"{each.ranks:,} ranks, {plain(each.gbps)} Gbit/s<br>{times(each.gains[method])} beside the others<br>"
        f"{times(each.alone[method])} alone"
    )


def _stops_chart(result: SimulateResult) -> Figure:
    """Draw bandwidths at which methods start and stop paying, by ranks: two lines a method."""
    top = result.gbps[-1]
    data: list[dict[str, Any]] = []
    for method, color in enumerate(_colors(result)):
        ends = [stop.gbps[method] for stop in result.stops]
        spans = [_spans(result, stop.ranks, method) for stop in result.stops]
        starts = [found[0][0] if found and found[0][0] > 0 else None for found in spans]
        name = result.methods[method][0]
        told = [
            f"{name}, {stop.ranks:,} ranks<br>{_when(found)}"
            for stop, found in zip(result.stops, spans, strict=True)
        ]
        stopped = ["triangle-up" if end is None else "circle" for end in ends]
        drawn = [top if end is None else end if end > 0 else None for end in ends]
        for gbps, dash, symbol in ((drawn, "solid", stopped), (starts, "dot", ["circle-open"] * len(starts))):
            trace = scatter(
                "lines+markers",
                [stop.ranks for stop in result.stops],
                gbps,
                "%{customdata}",
                name=name,
                line={"color": color, "width": 2.5, "dash": dash},
                marker={"color": color, "size": 8, "symbol": symbol},
                customdata=told,
            )
            data.append(trace)
    x = {**logarithmic([float(ranks) for ranks in result.ranks]), "title": {"text": "ranks"}}
    x |= {"tickvals": result.ranks, "ticktext": [f"{ranks:,}" for ranks in result.ranks]}
    y = {**logarithmic([result.gbps[0], top]), "title": {"text": "Gbit/s"}, "automargin": True}
    return {"data": data, "layout": {"height": 420, "xaxis": x, "yaxis": y}}


def _spans(result: SimulateResult, ranks: int, method: int) -> list[tuple[float, float]]:
    """Return the bandwidths between which a method pays, from the gains that its map shows."""
    return paying_spans(result.gbps, [result.cell(ranks, gbps).gains[method] for gbps in result.gbps])


def _when(spans: list[tuple[float, float]]) -> str:
    if not spans:
        return "never pays"
    if spans == [(0.0, math.inf)]:
        return "pays at all bandwidths that were simulated"
    words = []
    for start, end in spans:
        if start == 0:
            words.append(f"below {plain(end)} Gbit/s")
        elif end == math.inf:
            words.append(f"from {plain(start)} Gbit/s on")
        else:
            words.append(f"from {plain(start)} to {plain(end)} Gbit/s")
    return "pays " + ", ".join(words)
