"""Axes and labels that all charts share.

Categories stand at whole numbers with names beside them, so that a name can be anything: a number,
very long, or HTML.
"""

from __future__ import annotations

import html
import math
from typing import Any

from laconic.numerals import plain

__all__ = ["beside", "byte_unit", "label", "logarithmic", "names_axis"]

Axis = dict[str, Any]

_LONGEST_NAME = 24


def label(name: str) -> str:
    """Make a name that Plotly shows as it is, cut where it is longer than a chart can bear."""
    return html.escape(name if len(name) <= _LONGEST_NAME else name[: _LONGEST_NAME - 1] + "…")


def names_axis(names: list[str]) -> Axis:
    """Names from top to bottom, at 0, 1, 2 and so on."""
    return {
        "tickmode": "array",
        "tickvals": list(range(len(names))),
        "ticktext": names,
        "range": [len(names) - 0.5, -0.5],
        "automargin": True,
        "showgrid": False,
        "zeroline": False,
        "fixedrange": True,
    }


def logarithmic(values: list[float]) -> Axis:
    """Lay a log axis around the values, with round numbers named and as many as fit."""
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
    """Text that begins where a bar ends."""
    return {
        "x": x,
        "y": y,
        "text": text,
        "showarrow": False,
        "xanchor": "left",
        "font": {"size": 12, "color": "--ink"},
    }


def byte_unit(longest: float) -> tuple[str, float]:
    """Choose the unit in which the longest bar is a number of few digits, and its size in bytes."""
    units = (("GB", 1e9), ("MB", 1e6), ("kB", 1e3))
    return next((unit for unit in units if longest >= unit[1]), ("bytes", 1.0))
