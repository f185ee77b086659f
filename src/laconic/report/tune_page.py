"""The page of ``laconic tune``: what was chosen, and what every other choice would have done."""

from __future__ import annotations

from html import escape

from laconic.numerals import NONE, bytes_text, plain, share, times
from laconic.report.document import Figure, cards, cell, chart, document, facts, section, table
from laconic.report.heat_map import harm_map, homogenization_map
from laconic.report.result import ratio
from laconic.report.tune_result import TunedDirection, TunedTable, TuneResult

__all__ = ["render_tuned"]

_MOST_TABLES = 60
_HARM = (
    "Color: predicted increase of the loss, as a share of it, logarithmic. Figures: how many times fewer bytes than "
    "float32, in brackets where the error would rival the signal and the bound was not offered. Framed: the choice."
)
_INDEX = (
    "Share of a table's distinct rows that stay distinct when quantized, by which the SC'24 paper classes tables; "
    "the choices do not depend on it."
)

_CHOICES = "Bytes of all ranks in a step; below, against float32."


def render_tuned(result: TuneResult) -> str:
    """Lay out a result as HTML."""
    largest = sorted(result.tables, key=_before, reverse=True)[:_MOST_TABLES]
    shown = [each for each in result.tables if each in largest]
    some = ""
    if len(shown) < len(result.tables):
        some = f" The {len(shown)} tables with most traffic of {len(result.tables)}."
    return document(
        result.title,
        f"<header><h1>{escape(result.title)}</h1>{_circumstances(result)}</header>{_headline(result)}"
        + section("Rows", _map("rows", harm_map(shown, "forward")), _HARM + some)
        + section("Gradients", _map("gradients", harm_map(shown, "backward")), _HARM + some)
        + section("Homogenization index", _map("homogenization", homogenization_map(shown)), _INDEX + some)
        + section("Choices", _choices(result), _CHOICES),
    )


def _map(name: str, figure: Figure) -> str:
    drawn = chart(name, figure, f"Heat map of {name}, tables by bounds")
    return f'<div class="wide"><div class="map">{drawn}</div></div>'


def _circumstances(result: TuneResult) -> str:
    return facts(
        [
            ("ranks", f"{result.ranks}"),
            ("steps trained exactly", f"{result.steps:,}"),
            ("loss", f"{result.loss:.4f}"),
            ("its fall while steps grow e-fold", share(result.slope)),
            ("budget", f"loss +{share(result.budget)}"),
        ]
    )


def _headline(result: TuneResult) -> str:
    fewer = times(ratio(result.bytes_exact, result.bytes_sent))
    return cards(
        "<b>Predicted</b> for rows and gradients",
        [
            (
                fewer,
                "fewer bytes",
                f"{bytes_text(result.bytes_exact)} → {bytes_text(result.bytes_sent)} a step",
            ),
            (f"+{share(result.harm)}", "loss", f"of +{share(result.budget)} allowed"),
            (
                bytes_text(result.lower_bound),
                "at the very least",
                "no other choice within the budget gets below",
            ),
        ],
    )


def _choices(result: TuneResult) -> str:
    names = ("table", "entries", "class", "rows", "bound", "why", "gradients", "bound", "why")
    rows = [
        [
            escape(each.name),
            cell(f"{each.rows:,}"),
            each.paper_class,
            *_choice(each.forward),
            *_choice(each.backward),
        ]
        for each in result.tables
    ]
    return table(names, rows, "choices")


def _choice(direction: TunedDirection) -> list[str]:
    chosen = direction.chosen
    return [
        cell(bytes_text(chosen.bytes_sent), times(ratio(direction.bytes_exact, chosen.bytes_sent))),
        cell(NONE if chosen.bound is None else plain(chosen.bound)),
        f"<small>{escape(chosen.reason)}</small>",
    ]


def _before(each: TunedTable) -> float:
    return each.forward.bytes_exact + each.backward.bytes_exact
