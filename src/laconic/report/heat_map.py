"""Heat maps of tables against bounds: what every choice would have done, and the one that was made.

A column stands for a bound, the first of a map of harm for exactness; a frame marks the choice. The scale of harm
is logarithmic.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal

from laconic.numerals import bytes_text, share, times
from laconic.report.axes import label, names_axis
from laconic.report.document import Figure
from laconic.report.result import ratio
from laconic.report.tune_result import TunedDirection, TunedTable

__all__ = [
    "DECADES",
    "Direction",
    "color_bar",
    "frames",
    "harm_map",
    "heat",
    "homogenization_map",
    "logarithm",
]

Direction = Literal["forward", "backward"]

DECADES = 5  # of harm that have colors of their own; what is below the lowest is as good as none


def harm_map(tables: Sequence[TunedTable], direction: Direction) -> Figure:
    """Color: harm; text: how many times smaller, in brackets where the bound was not offered."""
    directions: list[TunedDirection] = [getattr(table, direction) for table in tables]
    bounds = directions[0].bounds
    highest = max((harm for d in directions for harm in d.harm), default=0.0)
    top = math.ceil(math.log10(highest)) if highest > 0 else 0
    bottom = top - DECADES
    cells = {
        **heat([[None, *(logarithm(harm, bottom) for harm in d.harm)] for d in directions]),
        "zmin": bottom,
        "zmax": top,
        "colorscale": [[0, "--harm-low"], [0.5, "--harm-middle"], [1, "--harm-high"]],
        "colorbar": color_bar(
            "harm", [(e, share(10.0**e)) for e in range(bottom, top + 1)] if highest > 0 else []
        ),
        "text": [["", *(_ratio(d, i) for i in range(len(bounds)))] for d in directions],
        "customdata": [
            [_as_it_is(table, d), *(_told(table, d, i) for i in range(len(bounds)))]
            for table, d in zip(tables, directions, strict=True)
        ],
        "hovertemplate": "%{customdata}<extra></extra>",
    }
    chosen = [0 if d.chosen.bound is None else bounds.index(d.chosen.bound) + 1 for d in directions]
    names = ["exact", *(f"{bound:g}" for bound in bounds)]
    return {"data": [cells], "layout": {**_layout(tables, names), "shapes": frames(chosen)}}


def homogenization_map(tables: Sequence[TunedTable]) -> Figure:
    """Color and text: the homogenization index at every bound of rows."""
    bounds = tables[0].forward.bounds
    cells = {
        **heat([list(table.homogenization) for table in tables]),
        "zmin": 0,
        "zmax": 1,
        "colorscale": [[0, "--merged"], [1, "--apart"]],
        "colorbar": color_bar("index", [(0, "0"), (0.5, "0.5"), (1, "1")]),
        "text": [[f"{index:.2f}" for index in table.homogenization] for table in tables],
        "customdata": [
            [
                f"{label(table.name)} at {bound:g}<br>{index:.4f} of its distinct rows stay apart"
                for bound, index in zip(bounds, table.homogenization, strict=True)
            ]
            for table in tables
        ],
        "hovertemplate": "%{customdata}<extra></extra>",
    }
    return {"data": [cells], "layout": _layout(tables, [f"{bound:g}" for bound in bounds])}


def heat(colors: list[list[float | None]]) -> dict[str, Any]:
    """Colors of cells, row by row."""
    return {
        "type": "heatmap",
        "x": list(range(len(colors[0]))),
        "y": list(range(len(colors))),
        "z": colors,
        "xgap": 2,
        "ygap": 2,
        "texttemplate": "%{text}",
        "textfont": {"size": 11},
    }


def frames(columns: list[int]) -> list[dict[str, Any]]:
    """Outline the cell in this column of every row."""
    line = {"color": "--ink", "width": 2}
    return [
        {"type": "rect", "x0": x - 0.5, "x1": x + 0.5, "y0": y - 0.5, "y1": y + 0.5, "line": line}
        for y, x in enumerate(columns)
    ]


def _layout(tables: Sequence[TunedTable], names: list[str]) -> dict[str, Any]:
    columns = {
        "title": {"text": "bound"},
        "tickmode": "array",
        "tickvals": list(range(len(names))),
        "ticktext": names,
        "range": [-0.5, len(names) - 0.5],
        "showgrid": False,
        "fixedrange": True,
    }
    rows = names_axis([label(table.name) for table in tables])
    return {"height": max(90 + 26 * len(tables), 230), "xaxis": columns, "yaxis": rows}


def color_bar(title: str, ticks: list[tuple[float, str]]) -> dict[str, Any]:
    """Show what colors mean."""
    return {
        "title": {"text": title},
        "tickvals": [value for value, _ in ticks],
        "ticktext": [text for _, text in ticks],
        "thickness": 12,
        "outlinewidth": 0,
    }


def logarithm(harm: float, bottom: float) -> float:
    """Of ten, but not below ``bottom``."""
    return max(math.log10(harm), bottom) if harm > 0 else bottom


def _ratio(direction: TunedDirection, i: int) -> str:
    text = times(ratio(direction.bytes_exact, direction.bytes_sent[i]))
    return text if direction.offered[i] else f"({text})"


def _told(table: TunedTable, direction: TunedDirection, i: int) -> str:
    sent, before = bytes_text(direction.bytes_sent[i]), bytes_text(direction.bytes_exact)
    refused = "" if direction.offered[i] else "<br>not offered: the error rivals the signal"
    return (
        f"{label(table.name)} at {direction.bounds[i]:g}<br>{before} → {sent} a step<br>"
        f"loss +{share(direction.harm[i])}, error {share(direction.error[i])} of the signal{refused}"
    )


def _as_it_is(table: TunedTable, direction: TunedDirection) -> str:
    return f"{label(table.name)}, exact<br>{bytes_text(direction.bytes_exact)} a step"
