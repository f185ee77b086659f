"""The page of ``laconic profile``: for every table, which share of lookups goes to how few rows."""

from __future__ import annotations

from html import escape

import numpy as np

from laconic.numerals import share
from laconic.plan.access.access import Access, TableAccess
from laconic.plan.access.zipf_fit import zipf_shares
from laconic.report.access_text import bag_text, distinct_text, drift_text, errors_text, zipf_text
from laconic.report.axes import label, logarithmic
from laconic.report.document import Figure, cell, chart, document, facts, legend, section, table

__all__ = ["render_access"]

_POINTS = 160
_HOW = (
    "Rows by falling frequency on a logarithmic axis, and the share of lookups that the first so many of them get. The "
    "dashed line is Zipf's law with the fitted exponent, as far as rows have at least 8 lookups. Drift compares the "
    "last third of the samples with the first, less what chance makes of it: 0 is none, 1 means other rows altogether."
)
_ABOUT = (
    "Top 1 % is of all rows of a table, looked up or not. KS is the largest difference between the fitted law and "
    "what was found, in share of lookups. The interval of drift is one standard deviation of what chance does, "
    "that of rows looked up is five standard errors."
)


def render_access(access: Access) -> str:
    """Lay out access statistics as HTML."""
    about = facts(
        [
            ("samples", f"{access.samples:,}"),
            ("tables", f"{len(access.tables)}"),
            ("rows", f"{sum(each.rows for each in access.tables):,}"),
            ("lookups", f"{sum(each.lookups for each in access.tables):,}"),
        ]
    )
    keys = legend([("━", "--method-1", "found"), ("╍", "--method-2", "Zipf's law, fitted")])
    plots = "".join(_plot(number, each) for number, each in enumerate(access.tables))
    title = f"Lookups of {access.source}"
    return document(
        title,
        f"<header><h1>{escape(title)}</h1>{about}</header>"
        + section("How few rows get how many lookups", f'{keys}<div class="pair">{plots}</div>', _HOW)
        + section("Tables", _figures(access), f"{_ABOUT} {escape(' '.join(errors_text(access)))}"),
    )


def _plot(number: int, each: TableAccess) -> str:
    said = [
        f"{each.rows:,} rows, {distinct_text(each)} looked up",
        f"top 1 %: {share(each.top_share)}",
        f"Zipf {zipf_text(each)}",
        f"drift {drift_text(each)}",
    ]
    drawn = '<p class="notice">No lookups.</p>'
    if each.lookups:
        drawn = chart(f"table-{number}", _figure(each), f"Share of lookups by rows of {each.name}")
    return f'<div><h3>{escape(each.name)}</h3>{drawn}<p class="note">{escape("; ".join(said))}.</p></div>'


def _figure(each: TableAccess) -> Figure:
    ranks = _ranks(each.rows)
    data = [_line("found", ranks, each.share_of_top(ranks), "--method-1", "solid")]
    if each.zipf is not None:
        fitted = _ranks(each.zipf.ranks)
        law = zipf_shares(each.zipf, fitted) * each.share_of_top(np.array([each.zipf.ranks]))
        data.append(_line(f"Zipf {each.zipf.exponent:.2f}", fitted, law, "--method-2", "dash"))
    layout = {
        "height": 260,
        "xaxis": {
            **logarithmic([1.0, float(max(each.rows, 10))]),
            "title": {"text": f"most frequent rows of {label(each.name)}"},
        },
        "yaxis": {
            "title": {"text": "share of lookups"},
            "range": [0, 1.03],
            "tickformat": ".0%",
            "automargin": True,
        },
    }
    return {"data": data, "layout": layout}


def _ranks(most: int) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    return np.unique(np.round(np.geomspace(1, most, _POINTS)))


def _line(
    name: str,
    ranks: np.ndarray[tuple[int], np.dtype[np.float64]],
    shares: np.ndarray[tuple[int], np.dtype[np.float64]],
    color: str,
    dash: str,
) -> dict[str, object]:
    return {
        "type": "scatter",
        "mode": "lines+markers" if ranks.size == 1 else "lines",
        "name": name,
        "x": ranks.tolist(),
        "y": np.minimum(shares, 1.0).tolist(),
        "line": {"color": color, "width": 2, "dash": dash},
        "marker": {"color": color},
        "hovertemplate": f"{name}<br>%{{x:,.0f}} rows: %{{y:.1%}}<extra></extra>",
    }


def _figures(access: Access) -> str:
    names = ("table", "rows", "looked up", "lookups", "bag", "top 1 %", "Zipf", "drift")
    rows = [
        [
            escape(each.name),
            cell(f"{each.rows:,}"),
            cell(distinct_text(each)),
            cell(f"{each.lookups:,}"),
            cell(bag_text(each)),
            cell(share(each.top_share)),
            cell(zipf_text(each)),
            cell(drift_text(each)),
        ]
        for each in access.tables
    ]
    return table(names, rows, "figures")
