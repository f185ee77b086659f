"""The HTML of every report: one file with everything in it, for any browser, without a network.

The style sheet is inlined, and so are Plotly and the script where the page has charts. The content
security policy forbids the browser to fetch anything at all.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any, TypeVar

__all__ = ["Card", "Figure", "Page", "cell", "chart", "largest", "legend", "pair", "section", "table", "wide"]

Figure = dict[str, Any]
"""Data and layout for Plotly; a color is the name of a CSS variable."""

Card = tuple[str, str, str]
"""HTML of a large figure, of what it is, and of the small print under it."""

Item = TypeVar("Item")

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data: blob:"
_NO_SCRIPT = """<noscript><p class="notice">Charts need JavaScript; all figures are in the tables.</p></noscript>
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """What a report consists of, from top to bottom."""

    title: str
    facts: Iterable[tuple[str, str]]
    """Names and values that say under which circumstances the figures hold; text, not HTML."""

    intro: str = ""
    """HTML above the cards, which says what they are about."""

    cards: Sequence[Card] = ()
    """The few figures that matter most; without any, the page begins with its sections."""

    sections: Iterable[str]
    """HTML, as ``section`` makes it; empty ones leave no trace."""

    charts: bool = True
    """Whether Plotly draws something; a page without charts has no script and needs no Plotly."""

    def html(self) -> str:
        """Lay out the whole file."""
        here, title = Path(__file__).parent, escape(self.title)
        style = (here / "page.css").read_text(encoding="utf-8")
        return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{_POLICY}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{title}</title>
<style>
{style}</style>
</head>
<body>
<main>
{_NO_SCRIPT if self.charts else ""}<header><h1>{title}</h1>{self._facts()}</header>{self._headline()}{"".join(self.sections)}
</main>
{_scripts() if self.charts else ""}</body>
</html>
"""

    def _facts(self) -> str:
        items = [f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>" for name, value in self.facts]
        return f'<dl class="facts">{"".join(items)}</dl>' if items else ""

    def _headline(self) -> str:
        if not self.cards:
            return ""
        body = "".join(
            f"<li><strong>{figure}</strong> <span>{what}</span><small>{detail}</small></li>"
            for figure, what, detail in self.cards
        )
        return f'<section class="headline"><p>{self.intro}</p><ul>{body}</ul></section>'


def _scripts() -> str:
    """Return Plotly, and the script that draws the figures with it."""
    from plotly.offline import get_plotlyjs  # noqa: PLC0415 -- optional

    script = (Path(__file__).parent / "page.js").read_text(encoding="utf-8")
    return f"<script>{get_plotlyjs()}</script>\n<script>\n{script}</script>\n"


def section(heading: str, content: str, note: str, after: str = "") -> str:
    """Show something under a heading, with a note that says how to read it."""
    return f'<section><h2>{heading}</h2>{content}<p class="note">{note}</p>{after}</section>'


def pair(plots: Iterable[str]) -> str:
    """Show plots side by side where there is room."""
    return f'<div class="pair">{"".join(plots)}</div>'


def wide(name: str, figure: Figure, description: str) -> str:
    """Show a map, which a narrow window scrolls sideways."""
    return f'<div class="wide"><div class="map">{chart(name, figure, description)}</div></div>'


def legend(keys: Sequence[tuple[str, str, str]], hides: Sequence[str] = ()) -> str:
    """List names and colors; with ``hides``, as buttons that hide a trace of these figures."""
    items = []
    for index, (symbol, color, name) in enumerate(keys):
        inner = (
            f'<span class="key" style="color:var({color})" aria-hidden="true">{symbol}</span> {escape(name)}'
        )
        if hides:
            data = f'data-trace="{index}" data-figures="{" ".join(hides)}" title="show or hide"'
            inner = f'<button type="button" aria-pressed="true" {data}>{inner}</button>'
        items.append(f"<li>{inner}</li>")
    return f'<ul class="legend">{"".join(items)}</ul>'


def chart(name: str, figure: Figure, description: str) -> str:
    """Show a figure; its data stand beside it, and the page's script draws them."""
    height = figure["layout"]["height"]
    return (
        f'<div class="chart" id="{name}" role="img" aria-label="{escape(description)}" style="height:{height}px"></div>'
        f'<script type="application/json" data-chart="{name}">{_json(figure)}</script>'
    )


def table(names: Sequence[str], rows: Iterable[Sequence[str]], kind: str) -> str:
    """One row of cells for each of ``rows``, the first of them its name; cells are HTML."""
    head = "".join(f'<th scope="col">{name}</th>' for name in names)
    body = "".join(
        f'<tr><th scope="row">{cells[0]}</th>'
        + "".join(
            f'<td data-name="{name}">{shown}</td>' for name, shown in zip(names[1:], cells[1:], strict=True)
        )
        + "</tr>"
        for cells in rows
    )
    return (
        f'<div class="wide"><table class="{kind}"><thead><tr>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )


def cell(figure: str, small: str = "") -> str:
    """Show a figure, and small print under it."""
    return f"<span>{figure}</span><small>{small}</small>" if small else f"<span>{figure}</span>"


def largest(items: Sequence[Item], size: Callable[[Item], float], most: int) -> list[Item]:
    """Return the largest items, at most ``most``, in the order in which they were."""
    kept = sorted(range(len(items)), key=lambda i: size(items[i]), reverse=True)[:most]
    return [items[i] for i in sorted(kept)]


def _json(value: object) -> str:
    """JSON that can stand in a script element whatever is in it."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
