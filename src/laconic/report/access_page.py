"""The page of ``laconic profile``: which share of lookups goes to how few rows, table by table."""

from __future__ import annotations

from html import escape

import numpy as np

from laconic.numerals import NONE, share
from laconic.page import Figure, Page, cell, chart, legend, pair, section, table
from laconic.plan.access.access import Access, TableAccess
from laconic.plan.access.estimates import zipf_shares
from laconic.report.charts import label, logarithmic, scatter

__all__ = ["access_page", "errors_text"]

Floats = np.ndarray[tuple[int], np.dtype[np.float64]]

_POINTS = 160
_HOW = (
    "Rows by falling frequency on a logarithmic axis, and the share of lookups that rows up to there get. The "
    "dashed line is Zipf's law with the fitted exponent, as far as rows have at least 8 lookups. Drift compares the "
    "last third of the samples with the first, less what chance makes of it: 0 is none, 1 means other rows altogether."
)
_ABOUT = (
    "Top 1 % is of all rows of a table, looked up or not. KS is the largest difference between the fitted law and "
    "what was found, in share of lookups. The interval of drift is one standard deviation of what chance does, "
    "that of rows looked up is five standard errors."
)


def access_page(access: Access) -> Page:
    """Make the page of a profile."""
    keys = legend([("━", "--method-1", "found"), ("╍", "--method-2", "Zipf's law, fitted")])
    plots = (_plot(number, each) for number, each in enumerate(access.tables))
    return Page(
        title=f"Lookups of {access.source}",
        facts=[
            ("samples", f"{access.samples:,}"),
            ("tables", f"{len(access.tables)}"),
            ("rows", f"{sum(each.rows for each in access.tables):,}"),
            ("lookups", f"{sum(each.lookups for each in access.tables):,}"),
        ],
        sections=[
            section("How few rows get how many lookups", keys + pair(plots), _HOW),
            section("Tables", _figures(access), f"{_ABOUT} {escape(' '.join(errors_text(access)))}"),
        ],
    )


def _plot(number: int, each: TableAccess) -> str:
    said = [
        f"{each.rows:,} rows, {_distinct_text(each)} looked up",
        f"top 1 %: {share(each.top_share)}",
        f"Zipf {_zipf_text(each)}",
        f"drift {_drift_text(each)}",
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


def _ranks(most: int) -> Floats:
    return np.unique(np.round(np.geomspace(1, most, _POINTS)))


def _line(name: str, ranks: Floats, shares: Floats, color: str, dash: str) -> dict[str, object]:
    return scatter(
        "lines+markers" if ranks.size == 1 else "lines",
        ranks.tolist(),
        np.minimum(shares, 1.0).tolist(),
        f"{name}<br>%{{x:,.0f}} rows: %{{y:.1%}}",
        name=name,
        line={"color": color, "width": 2, "dash": dash},
        marker={"color": color},
    )


def _figures(access: Access) -> str:
    names = ("table", "rows", "looked up", "lookups", "bag", "top 1 %", "Zipf", "drift")
    rows = [
        [
            escape(each.name),
            cell(f"{each.rows:,}"),
            cell(_distinct_text(each)),
            cell(f"{each.lookups:,}"),
            cell(_bag_text(each)),
            cell(share(each.top_share)),
            cell(_zipf_text(each)),
            cell(_drift_text(each)),
        ]
        for each in access.tables
    ]
    return table(names, rows, "figures")


def _distinct_text(table: TableAccess) -> str:
    """Write the number of rows looked up; an estimate has an interval of five standard errors."""
    found = table.distinct
    reach = max(found.upper - found.rows, found.rows - found.lower)
    return f"{found.rows:,}" if not reach else f"{found.rows:,} ±{share(reach / found.rows)}"


def _bag_text(table: TableAccess) -> str:
    """Write the mean length of bags, and the range where they differ."""
    if not table.bags:
        return NONE
    shortest, longest = table.bags[0][0], table.bags[-1][0]
    return f"{shortest}" if shortest == longest else f"{table.mean_bag:.2f} ({shortest}-{longest})"


def _zipf_text(table: TableAccess) -> str:
    """Write the exponent of Zipf's law and its distance from what was found."""
    return NONE if table.zipf is None else f"{table.zipf.exponent:.2f} (KS {table.zipf.ks:.2f})"


def _drift_text(table: TableAccess) -> str:
    """Write the distance, and the standard deviation that chance gives it."""
    return NONE if table.drift is None else f"{table.drift.distance:.3f} ±{table.drift.noise:.3f}"


def errors_text(access: Access) -> tuple[str, ...]:
    """Say which counts are exact and how far off the others may be, a sentence for every table."""
    estimated = [table for table in access.tables if not table.exact]
    exact = len(access.tables) - len(estimated)
    if not estimated:
        return ("All counts are exact.",)
    others = (f"All counts of the other {exact} tables are exact.",) if exact else ()
    return (*map(_estimate, estimated), *others)


def _estimate(table: TableAccess) -> str:
    counted = f"{table.name}: {_distinct_text(table)} rows, {table.ids_H.size:,} of them counted one by one ({_missed(table)})"
    error = f" (standard error {share(table.sampled**-0.5)})" if table.sampled else ""
    return f"{counted}; the others are estimated from {table.sampled:,} drawn at random{error}."


def _missed(table: TableAccess) -> str:
    off = int((table.missed_H > 0).sum())
    if not off:
        return "all exactly"
    return f"{table.ids_H.size - off:,} exactly, {off:,} at most {int(table.missed_H.max()):,} too low"
