"""What the Plotly figures of pages share: axes, labels, lines, heat maps and colors.

A figure is a plain dictionary. A color in it is the name of a CSS variable, ``--method-0`` or
``--ink``; the page's script replaces it by what the style sheet says in light or in dark.

Categories stand at whole numbers with names beside them, so that a name can be anything: a number,
very long, or HTML.
"""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Sequence
from typing import Any

from laconic.numerals import plain, share

__all__ = [
    "beside",
    "byte_unit",
    "color_bar",
    "columns_axis",
    "frames",
    "harm_heat",
    "heat",
    "label",
    "logarithmic",
    "method_color",
    "names_axis",
    "scatter",
]

Axis = dict[str, Any]
Trace = dict[str, Any]

_LONGEST_NAME = 24
_PALETTE = 7  # besides the gray of the first; the style sheet defines --method-0 to --method-7
_DECADES = 5  # powers of ten of harm that have their own colors; less harm is as good as none


def method_color(index: int, count: int) -> str:
    """Return gray for the first, blue for the last, and the rest of the palette between them."""
    if index == 0:
        return "--method-0"
    return "--method-1" if index == count - 1 else f"--method-{(index - 1) % (_PALETTE - 1) + 2}"


def label(name: str) -> str:
    """Make a name that Plotly shows as it is, cut where it is longer than a chart can bear."""
    return html.escape(name if len(name) <= _LONGEST_NAME else name[: _LONGEST_NAME - 1] + "…")


def names_axis(names: Sequence[str]) -> Axis:
    """Make an axis with names from top to bottom, at 0, 1, 2 and so on."""
    return {
        **columns_axis(names),
        "range": [len(names) - 0.5, -0.5],
        "automargin": True,
        "zeroline": False,
    }


def columns_axis(names: Sequence[str]) -> Axis:
    """Make an axis with names from left to right, at 0, 1, 2 and so on."""
    return {
        "tickmode": "array",
        "tickvals": list(range(len(names))),
        "ticktext": list(names),
        "range": [-0.5, len(names) - 0.5],
        "showgrid": False,
        "fixedrange": True,
    }


def logarithmic(values: list[float]) -> Axis:
    """Make a logarithmic axis around the values, with as many round numbers as fit."""
    low, high = math.log10(min(values)), math.log10(max(values))
    pad = 0.06 * (high - low) + 0.05
    steps = (1, 2, 5) if high - low < 2.3 else (1,)
    ticks = [s * 10.0**e for e in range(math.floor(low) - 1, math.ceil(high) + 1) for s in steps]
    inside = [tick for tick in ticks if low - pad <= math.log10(tick) <= high + pad]
    return {
        "type": "log",
        "range": [low - pad, high + pad],
        "tickmode": "array",
        "tickangle": 0,
        "tickvals": inside,
        "ticktext": [plain(tick) if tick >= 1e-3 else f"{tick:.0e}".replace("e-0", "e-") for tick in inside],
    }


def beside(x: float, y: float, text: str) -> dict[str, Any]:
    """Make an annotation that begins where a bar ends."""
    font = {"size": 12, "color": "--ink"}
    return {"x": x, "y": y, "text": text, "showarrow": False, "xanchor": "left", "font": font}


def byte_unit(longest: float) -> tuple[str, float]:
    """Choose the unit for a chart whose longest bar has this many bytes; return its size too."""
    units = (("GB", 1e9), ("MB", 1e6), ("kB", 1e3))
    return next((unit for unit in units if longest >= unit[1]), ("bytes", 1.0))


def scatter(mode: str, x: Sequence[Any], y: Sequence[Any], hover: str, **more: Any) -> Trace:
    """Make a trace of lines, markers or both; ``hover`` is the template of a point's text."""
    return {
        "type": "scatter",
        "mode": mode,
        "x": x,
        "y": y,
        "hovertemplate": f"{hover}<extra></extra>",
        **more,
    }


def heat(
    colors: Sequence[Sequence[float | None]],
    text: Sequence[Sequence[str]],
    told: Sequence[Sequence[str]],
    **more: Any,
) -> Trace:
    """Make a heat map, row by row: colors of cells, the text in them, and their hover text."""
    return {
        "type": "heatmap",
        "x": list(range(len(colors[0]))),
        "y": list(range(len(colors))),
        "z": colors,
        "xgap": 2,
        "ygap": 2,
        "text": text,
        "texttemplate": "%{text}",
        "textfont": {"size": 11},
        "customdata": told,
        "hovertemplate": "%{customdata}<extra></extra>",
        **more,
    }


def harm_heat(
    harms: Sequence[Sequence[float | None]], text: Sequence[Sequence[str]], told: Sequence[Sequence[str]]
) -> Trace:
    """Make a heat map of harm on a logarithmic scale; cells without a harm have no color."""
    highest = max((harm for row in harms for harm in row if harm is not None), default=0.0)
    top = math.ceil(math.log10(highest)) if highest > 0 else 0
    bottom = top - _DECADES
    colors = [[None if harm is None else _logarithm(harm, bottom) for harm in row] for row in harms]
    ticks = [(e, share(10.0**e)) for e in range(bottom, top + 1)] if highest > 0 else []
    scale = {
        "zmin": bottom,
        "zmax": top,
        "colorscale": [[0, "--harm-low"], [0.5, "--harm-middle"], [1, "--harm-high"]],
    }
    return heat(colors, text, told, **scale, colorbar=color_bar("harm", ticks))


def frames(columns: Iterable[int]) -> list[dict[str, Any]]:
    """Outline one cell in every row, by its column."""
    line = {"color": "--ink", "width": 2}
    return [
        {"type": "rect", "x0": x - 0.5, "x1": x + 0.5, "y0": y - 0.5, "y1": y + 0.5, "line": line}
        for y, x in enumerate(columns)
    ]


def color_bar(title: str, ticks: Sequence[tuple[float, str]]) -> dict[str, Any]:
    """Make the legend of a heat map's colors."""
    return {
        "title": {"text": title},
        "tickvals": [value for value, _ in ticks],
        "ticktext": [text for _, text in ticks],
        "thickness": 12,
        "outlinewidth": 0,
    }


def _logarithm(harm: float, bottom: float) -> float:
    return max(math.log10(harm), bottom) if harm > 0 else bottom
