"""Charts of ranks against bandwidth: how much a method gains, and where it gains nothing."""

from __future__ import annotations

import math
from typing import Any

from laconic.numerals import plain, times
from laconic.plan.simulate import paying_spans
from laconic.report.axes import logarithmic, names_axis
from laconic.report.charts import method_color
from laconic.report.document import Figure
from laconic.report.simulate_result import SimulateResult

__all__ = ["gain_map", "method_colors", "stops_chart"]

_FULL_COLOUR = 1.6  # octaves: a step three times as fast, or a third


def method_colors(count: int) -> list[str]:
    """One for each method."""
    return [method_color(index + 1, count + 2) for index in range(count)]


def gain_map(result: SimulateResult, method: int) -> Figure:
    """Color and text: the gain; ranks downwards, bandwidth to the right."""
    gains = [[result.cell(ranks, gbps).gains[method] for gbps in result.gbps] for ranks in result.ranks]
    heat = {
        "type": "heatmap",
        "x": list(range(len(result.gbps))),
        "y": list(range(len(result.ranks))),
        "z": [[max(-_FULL_COLOUR, min(_FULL_COLOUR, math.log2(gain))) for gain in row] for row in gains],
        "zmin": -_FULL_COLOUR,
        "zmax": _FULL_COLOUR,
        "colorscale": [[0, "--backward"], [0.5, "--raised"], [1, "--forward"]],
        "showscale": False,
        "xgap": 1,
        "ygap": 1,
        "text": [[f"{gain:.2f}" for gain in row] for row in gains],
        "texttemplate": "%{text}",
        "textfont": {"size": 11, "color": "--ink"},
        "customdata": [
            [_told(result, ranks, gbps, method) for gbps in result.gbps] for ranks in result.ranks
        ],
        "hovertemplate": "%{customdata}<extra></extra>",
    }
    bandwidths = {
        "title": {"text": "Gbit/s"},
        "tickmode": "array",
        "tickvals": list(range(len(result.gbps))),
        "ticktext": [plain(gbps) for gbps in result.gbps],
        "range": [-0.5, len(result.gbps) - 0.5],
        "showgrid": False,
        "fixedrange": True,
    }
    ranks_axis = {**names_axis([f"{ranks:,}" for ranks in result.ranks]), "title": {"text": "ranks"}}
    return {
        "data": [heat],
        "layout": {"height": 90 + 26 * len(result.ranks), "xaxis": bandwidths, "yaxis": ranks_axis},
    }


def _told(result: SimulateResult, ranks: int, gbps: float, method: int) -> str:
    cell = result.cell(ranks, gbps)
    return (
        f"{ranks:,} ranks, {plain(gbps)} Gbit/s<br>{times(cell.gains[method])} beside the others<br>"
        f"{times(cell.alone[method])} alone"
    )


def stops_chart(result: SimulateResult) -> Figure:
    """Bandwidths at which methods start and stop to pay, by ranks; two lines a method."""
    top = result.gbps[-1]
    lowest = result.gbps[0]
    data: list[dict[str, Any]] = []
    for method, color in enumerate(method_colors(len(result.methods))):
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
            data.append(
                {
                    "type": "scatter",
                    "mode": "lines+markers",
                    "name": name,
                    "x": [stop.ranks for stop in result.stops],
                    "y": gbps,
                    "line": {"color": color, "width": 2.5, "dash": dash},
                    "marker": {"color": color, "size": 8, "symbol": symbol},
                    "customdata": told,
                    "hovertemplate": "%{customdata}<extra></extra>",
                }
            )
    x = {**logarithmic([float(ranks) for ranks in result.ranks]), "title": {"text": "ranks"}}
    x |= {"tickvals": result.ranks, "ticktext": [f"{ranks:,}" for ranks in result.ranks]}
    y = {**logarithmic([lowest, top]), "title": {"text": "Gbit/s"}, "automargin": True}
    return {"data": data, "layout": {"height": 420, "xaxis": x, "yaxis": y}}


def _spans(result: SimulateResult, ranks: int, method: int) -> list[tuple[float, float]]:
    """Bandwidths between which a method pays, from the gains that its map shows."""
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
