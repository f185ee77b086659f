"""The page of ``laconic tune``: the bounds that were chosen, and what every other would have done.

Its maps have a row for every table and a column for every bound. The first column of a map of harm
stands for exact values. A frame marks the bound that was chosen.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any, Literal

from laconic.adapt.tune.result import TunedDirection, TunedTable, TuneResult
from laconic.numerals import NONE, bytes_text, plain, share, times
from laconic.page import Figure, Page, cell, largest, section, table, wide
from laconic.report.charts import color_bar, columns_axis, frames, harm_heat, heat, label, names_axis
from laconic.report.result import ratio

__all__ = ["tune_page"]

_MOST_TABLES = 60
_HARM = (
    "Color: predicted increase of the loss, as a share of it, logarithmic. Figures: how many times fewer bytes than "
    "float32, in brackets where the error would rival the signal and the bound was not offered. Framed: the choice."
)
_INDEX = (
    "Share of a table's distinct rows that stay distinct when quantized, by which the SC'24 paper classes tables; "
    "the choices do not depend on it."
)


def tune_page(result: TuneResult) -> Page:
    """Make the page of a tuning."""
    shown = largest(
        result.tables, lambda each: each.forward.bytes_exact + each.backward.bytes_exact, _MOST_TABLES
    )
    some = ""
    if len(shown) < len(result.tables):
        some = f" The {len(shown)} tables with most traffic of {len(result.tables)}."
    maps = (
        ("Rows", "rows", _harm_map(shown, "forward"), _HARM),
        ("Gradients", "gradients", _harm_map(shown, "backward"), _HARM),
        ("Homogenization index", "homogenization", _homogenization_map(shown), _INDEX),
    )
    sections = [
        section(heading, wide(name, figure, f"Heat map of {name}, tables by bounds"), note + some)
        for heading, name, figure, note in maps
    ]
    exact, sent = bytes_text(result.bytes_exact), bytes_text(result.bytes_sent)
    return Page(
        title=result.title,
        facts=[
            ("ranks", f"{result.ranks}"),
            ("steps trained", f"{result.steps:,}"),
            ("loss", f"{result.loss:.4f}"),
            ("budget", f"loss +{share(result.budget)}"),
        ],
        intro="<b>Predicted</b> for rows and gradients",
        cards=[
            (times(ratio(result.bytes_exact, result.bytes_sent)), "fewer bytes", f"{exact} → {sent} a step"),
            (f"+{share(result.harm)}", "loss", f"of +{share(result.budget)} allowed"),
            (
                bytes_text(result.lower_bound),
                "at the very least",
                "no other choice within the budget gets below",
            ),
        ],
        sections=[
            *sections,
            section("Choices", _bounds(result), "Bytes of all ranks in a step; below, against float32."),
        ],
    )


def _bounds(result: TuneResult) -> str:
    names = ("table", "entries", "class", "rows", "bound", "why", "gradients", "bound", "why")
    rows = [
        [
            escape(each.name),
            cell(f"{each.rows:,}"),
            each.paper_class,
            *_bound(each.forward),
            *_bound(each.backward),
        ]
        for each in result.tables
    ]
    return table(names, rows, "choices")


def _bound(direction: TunedDirection) -> list[str]:
    chosen = direction.chosen
    return [
        cell(bytes_text(chosen.bytes_sent), times(ratio(direction.bytes_exact, chosen.bytes_sent))),
        cell(NONE if chosen.bound is None else plain(chosen.bound)),
        f"<small>{escape(chosen.reason)}</small>",
    ]


def _harm_map(tables: Sequence[TunedTable], side: Literal["forward", "backward"]) -> Figure:
    """Draw harm as color and ratio as text, in brackets where the bound was not offered."""
    directions = [each.forward if side == "forward" else each.backward for each in tables]
    bounds = directions[0].bounds
    cells = harm_heat(
        [[None, *d.harm] for d in directions],
        [["", *(_ratio(d, i) for i in range(len(bounds)))] for d in directions],
        [
            [_as_it_is(each, d), *(_hover(each, d, i) for i in range(len(bounds)))]
            for each, d in zip(tables, directions, strict=True)
        ],
    )
    chosen = [0 if d.chosen.bound is None else bounds.index(d.chosen.bound) + 1 for d in directions]
    names = ["exact", *(f"{bound:g}" for bound in bounds)]
    return {"data": [cells], "layout": {**_layout(tables, names), "shapes": frames(chosen)}}


def _homogenization_map(tables: Sequence[TunedTable]) -> Figure:
    """Draw the homogenization index of every table at every bound of rows."""
    bounds = tables[0].forward.bounds
    cells = heat(
        [list(each.homogenization) for each in tables],
        [[f"{index:.2f}" for index in each.homogenization] for each in tables],
        [
            [
                f"{label(each.name)} at {bound:g}<br>{index:.4f} of its distinct rows stay apart"
                for bound, index in zip(bounds, each.homogenization, strict=True)
            ]
            for each in tables
        ],
        zmin=0,
        zmax=1,
        colorscale=[[0, "--merged"], [1, "--apart"]],
        colorbar=color_bar("index", [(0, "0"), (0.5, "0.5"), (1, "1")]),
    )
    return {"data": [cells], "layout": _layout(tables, [f"{bound:g}" for bound in bounds])}


def _layout(tables: Sequence[TunedTable], names: list[str]) -> dict[str, Any]:
    return {
        "height": max(90 + 26 * len(tables), 230),
        "xaxis": {"title": {"text": "bound"}, **columns_axis(names)},
        "yaxis": names_axis([label(each.name) for each in tables]),
    }


def _ratio(direction: TunedDirection, i: int) -> str:
    text = times(ratio(direction.bytes_exact, direction.bytes_sent[i]))
    return text if direction.offered[i] else f"({text})"


def _hover(each: TunedTable, direction: TunedDirection, i: int) -> str:
    sent, before = bytes_text(direction.bytes_sent[i]), bytes_text(direction.bytes_exact)
    refused = "" if direction.offered[i] else "<br>not offered: the error rivals the signal"
    return (
        f"{label(each.name)} at {direction.bounds[i]:g}<br>{before} → {sent} a step<br>"
        f"loss +{share(direction.harm[i])}, error {share(direction.error[i])} of the signal{refused}"
    )


def _as_it_is(each: TunedTable, direction: TunedDirection) -> str:
    return f"{label(each.name)}, exact<br>{bytes_text(direction.bytes_exact)} a step"
