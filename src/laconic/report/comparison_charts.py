"""Charts of a comparison of methods: steps, bytes, curves, tables."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from laconic.numerals import bytes_text, milliseconds, plain, times
from laconic.page import Figure
from laconic.report.charts import (
    beside,
    byte_unit,
    label,
    logarithmic,
    method_color,
    names_axis,
    scatter,
)
from laconic.report.result import Method, Point, TableFigures, ratio

__all__ = ["bytes_chart", "curve_chart", "step_chart", "table_chart"]

_SYMBOLS = ("circle", "square", "diamond", "triangle-up", "x", "star", "triangle-down", "pentagon")
_DASHES = ("solid", "solid", "dash", "dot", "dashdot", "longdash", "solid", "dash")
_MOST_MARKERS = 40
_DIRECTIONS = (("forward", "rows"), ("backward", "gradients"), ("ids", "ids"), ("dense", "dense"))


def step_chart(methods: Sequence[Method]) -> Figure:
    """Draw the median step of each method as a bar, divided into computing and waiting."""
    names = [label(method.name) for method in methods]
    waiting = [method.median_ms * method.communication_share for method in methods]
    computing = [method.median_ms - wait for method, wait in zip(methods, waiting, strict=True)]
    totals = [f" {milliseconds(method.median_ms)}" for method in methods]
    shares = (("compute", computing, "--compute"), ("communication", waiting, "--communication"))
    data = [
        {
            "type": "bar",
            "orientation": "h",
            "name": share,
            "x": values,
            "y": list(range(len(names))),
            "marker": {"color": color},
            "customdata": names,
            "text": [milliseconds(value) for value in values],
            "textposition": "none",
            "hovertemplate": f"%{{customdata}}<br>{share} %{{text}}<extra></extra>",
        }
        for share, values, color in shares
    ]
    longest = max(method.median_ms for method in methods)
    axis = {"title": {"text": "milliseconds per step"}, "rangemode": "tozero", "range": [0, longest]}
    layout = {
        "barmode": "stack",
        "bargap": 0.35,
        "height": 90 + 42 * len(names),
        "xaxis": axis,
        "yaxis": names_axis(names),
        "annotations": [
            beside(method.median_ms, i, total)
            for i, (method, total) in enumerate(zip(methods, totals, strict=True))
        ],
    }
    return {"data": data, "layout": layout}


def bytes_chart(methods: Sequence[Method]) -> Figure:
    """Draw the bytes on the wire: a group for each direction with a bar for each method."""
    count = len(methods)
    thickness = 0.82 / count
    longest = max(getattr(method, f"bytes_{kind}") for method in methods for kind, _ in _DIRECTIONS)
    unit, scale = byte_unit(longest)
    data, annotations = [], []
    for i, method in enumerate(methods):
        sent = [getattr(method, f"bytes_{kind}") for kind, _ in _DIRECTIONS]
        before = [getattr(method, f"bytes_{kind}_before") for kind, _ in _DIRECTIONS]
        offset = (i - (count - 1) / 2) * thickness
        shares = [f"{bytes_text(b)} before, {times(ratio(b, a))}" for a, b in zip(sent, before, strict=True)]
        data.append(
            {
                "type": "bar",
                "orientation": "h",
                "name": label(method.name),
                "x": [value / scale for value in sent],
                "y": [place + offset for place in range(len(_DIRECTIONS))],
                "width": thickness * 0.86,
                "marker": {"color": method_color(i, count)},
                "customdata": [[bytes_text(value), share] for value, share in zip(sent, shares, strict=True)],
                "hovertemplate": f"{label(method.name)}<br>%{{customdata[0]}} sent<br>%{{customdata[1]}}<extra></extra>",
            }
        )
        annotations += [
            beside(value / scale, place + offset, f" {bytes_text(value)}") for place, value in enumerate(sent)
        ]
    layout = {
        "barmode": "overlay",
        "height": 80 + len(_DIRECTIONS) * (14 + 17 * count),
        "xaxis": {"title": {"text": f"{unit} per step and rank"}, "range": [0, longest / scale or 1]},
        "yaxis": names_axis([name for _, name in _DIRECTIONS]),
        "annotations": annotations,
    }
    return {"data": data, "layout": layout}


def curve_chart(
    methods: Sequence[Method],
    across: Callable[[Point], float],
    up: Callable[[Point], float | None],
    *,
    across_name: str,
    up_name: str,
) -> Figure | None:
    """Draw a line for each method through the points that have a value; None where none has."""
    data: list[dict[str, Any]] = []
    for i, method in enumerate(methods):
        points = [point for point in method.curve if up(point) is not None]
        color, few = method_color(i, len(methods)), len(points) <= _MOST_MARKERS
        trace = scatter(
            "lines+markers" if few else "lines",
            [across(point) for point in points],
            [up(point) for point in points],
            f"{label(method.name)}<br>{up_name} %{{y:.5f}}<br>step %{{customdata[0]}}, "
            "%{customdata[1]}<br>%{customdata[2]} samples",
            name=label(method.name),
            line={"color": color, "width": 2, "dash": "solid" if few else _DASHES[i % len(_DASHES)]},
            marker={"color": color, "size": 7, "symbol": _SYMBOLS[i % len(_SYMBOLS)]},
            customdata=[
                [f"{point.step:,}", f"{plain(point.seconds)} s", f"{point.samples:,}"] for point in points
            ],
        )
        data.append(trace)
    if not any(trace["x"] for trace in data):
        return None
    values = [value for trace in data for value in trace["y"]]
    layout: dict[str, Any] = {
        "height": 340,
        "xaxis": {"title": {"text": across_name}, "rangemode": "tozero"},
        "yaxis": {"title": {"text": up_name}, "automargin": True, "tickformat": "~g"},
    }
    if min(values) == max(values):  # one point: Plotly would show it between -1 and 1
        layout["yaxis"]["range"] = [values[0] - 0.01, values[0] + 0.01]
    return {"data": data, "layout": layout}


def table_chart(tables: Sequence[TableFigures]) -> Figure:
    """Draw the ratios of each table on the left and its bound on the right, on log axes."""
    names = [label(table.name) for table in tables]
    places = list(range(len(tables)))
    sides = (("rows", 0, "--forward", "circle", 12), ("gradients", 1, "--backward", "diamond", 8))
    data = [
        scatter(
            "markers",
            [table.ratios[index] for table in tables],
            places,
            f"%{{customdata[0]}}<br>{side} %{{customdata[1]}} smaller",
            name=side,
            marker={"color": color, "size": size, "symbol": symbol},
            customdata=[
                [name, times(table.ratios[index])] for name, table in zip(names, tables, strict=True)
            ],
        )
        for side, index, color, symbol, size in sides
    ]
    bounds = scatter(
        "markers",
        [table.bound or None for table in tables],
        places,
        "%{customdata[0]}<br>bound %{customdata[1]}",
        name="bound",
        xaxis="x2",
        marker={"color": "--bound", "size": 9, "symbol": "line-ns-open", "line": {"width": 3}},
        customdata=[[name, _bound(table)] for name, table in zip(names, tables, strict=True)],
    )
    some_bound = any(table.bound for table in tables)
    layout = {
        "height": 90 + 21 * len(tables),
        "xaxis": {
            "title": {"text": "times smaller"},
            "domain": [0, 0.58 if some_bound else 1],
            **logarithmic([r for table in tables for r in table.ratios if r] + [1.0]),
        },
        "yaxis": {**names_axis(names), "showgrid": True},
    }
    if some_bound:
        layout["xaxis2"] = {
            "title": {"text": "bound"},
            "domain": [0.66, 1],
            **logarithmic([table.bound for table in tables if table.bound]),
        }
    return {"data": [*data, bounds] if some_bound else data, "layout": layout}


def _bound(table: TableFigures) -> str:
    return "none" if table.bound is None else f"{table.bound:.3g}"
