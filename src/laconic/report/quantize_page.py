"""The page of ``laconic quantize``: what every part got, what else it could have had, and what other budgets buy."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from typing import Any, Literal

from laconic.numerals import NONE, bytes_text, change, share, three, times
from laconic.report.axes import byte_unit, label, logarithmic, names_axis
from laconic.report.document import Figure, cards, cell, chart, document, facts, legend, section, table
from laconic.report.heat_map import DECADES, color_bar, frames, heat, logarithm
from laconic.report.quantize_result import HarmFigures, QuantizeCandidate, QuantizePart, QuantizeResult
from laconic.report.result import ratio

__all__ = ["render_quantized"]

_MOST_PARTS = 60
_MAP = (
    "Color: increase of normalized entropy (NE) when only this part is in that precision, as a share of NE, logarithmic; "
    "empty where the format cannot hold the values. Figures: how many times smaller than fp32. Framed: the choice."
)
_CURVE = (
    "What the sum of measured harms predicts for other budgets, solved for size and for latency; the line across is the "
    "budget of this run. Points may lie left of their budget: choices come in steps."
)


def render_quantized(result: QuantizeResult) -> str:
    """Lay out a result as HTML."""
    tables = [part for part in result.parts if part.kind == "table"]
    layers = [part for part in result.parts if part.kind == "layer"]
    return document(
        f"{result.title} in low precision",
        f"<header><h1>{escape(result.title)} in low precision</h1>{_circumstances(result)}</header>{_headline(result)}"
        + _curves(result)
        + _map("tables", tables)
        + _map("layers", layers)
        + section(
            "Choices",
            _choices(result),
            "Harm: expected, and below what was measured on labels, give or take.",
        )
        + _attempts(result),
    )


def _circumstances(result: QuantizeResult) -> str:
    counts = result.samples
    return facts(
        [
            ("objective", result.objective),
            ("budget", f"NE +{share(result.budget)}"),
            ("candidates measured on", f"{counts.probe:,} samples"),
            ("searched with", f"{counts.search:,}"),
            ("verified on", f"{counts.verification:,} never searched with"),
        ]
    )


def _headline(result: QuantizeResult) -> str:
    exact, low, harm = result.exact, result.low, result.harm
    return cards(
        "<b>Verified</b> on unseen samples, as the engine serves it",
        [
            (
                share(result.share),
                "of the size",
                f"{bytes_text(exact.bytes)} → {bytes_text(low.bytes)}",
            ),
            (
                f"{change(100 * harm.measured, 4)} %",
                "NE",
                f"± {share(harm.measured_se)}; {share(harm.expected)} expected, of {share(result.budget)} allowed",
            ),
            (
                times(ratio(exact.us, low.us)),
                "faster",
                f"{three(exact.us)} → {three(low.us)} µs for {result.batch} samples on one thread",
            ),
            (change(low.auc - exact.auc, 5), "AUC", f"{exact.auc:.5f} → {low.auc:.5f}"),
        ],
    )


def _curves(result: QuantizeResult) -> str:
    if not result.pareto:
        return ""
    plots = chart("pareto-size", _curve(result, "size"), "Size against harm") + chart(
        "pareto-latency", _curve(result, "latency"), "Latency against harm"
    )
    keys = [
        ("●", "--method-1", "for size"),
        ("■", "--method-2", "for latency"),
        ("◆", "--ink", "this artifact"),
    ]
    return section("What a budget buys", f'{legend(keys)}<div class="pair">{plots}</div>', _CURVE)


def _curve(result: QuantizeResult, up: Literal["size", "latency"]) -> Figure:
    """Draw harm across, and bytes or microseconds up; a line for each objective."""
    unit, scale = byte_unit(max(result.exact.bytes, 1.0)) if up == "size" else ("µs a batch", 1.0)

    def height(bytes_: float, us: float) -> float:
        return bytes_ / scale if up == "size" else result.exact.us + us

    data: list[dict[str, Any]] = []
    looks = (("size", "--method-1", "circle"), ("latency", "--method-2", "square"))
    for objective, color, symbol in looks:
        points = [point for point in result.pareto if point.objective == objective and point.harm > 0]
        data.append(
            {
                "type": "scatter",
                "mode": "lines+markers",
                "x": [100 * point.harm for point in points],
                "y": [height(point.bytes, point.us) for point in points],
                "line": {"color": color, "width": 2, "shape": "hv"},
                "marker": {"color": color, "size": 7, "symbol": symbol},
                "customdata": [
                    [bytes_text(p.bytes), f"{p.us:+,.0f} µs", share(p.harm), share(p.budget)] for p in points
                ],
                "hovertemplate": f"for {objective}<br>%{{customdata[0]}}, %{{customdata[1]}}<br>"
                "NE +%{customdata[2]} of %{customdata[3]}<extra></extra>",
            }
        )
    chosen = max(result.harm.expected, 1e-9)
    low = result.low
    data.append(
        {
            "type": "scatter",
            "mode": "markers",
            "x": [100 * chosen],
            "y": [low.bytes / scale if up == "size" else low.us],
            "marker": {"color": "--ink", "size": 11, "symbol": "diamond"},
            "hovertemplate": f"this artifact<br>{bytes_text(low.bytes)}, {three(low.us)} µs<extra></extra>",
        }
    )
    across = [x for trace in data for x in trace["x"]] + [100 * result.budget]
    return {
        "data": data,
        "layout": {
            "height": 340,
            "xaxis": {"title": {"text": "expected increase of NE, %"}, **logarithmic(across)},
            "yaxis": {"title": {"text": unit}, "rangemode": "tozero", "automargin": True},
            "shapes": [
                {
                    "type": "line",
                    "x0": 100 * result.budget,
                    "x1": 100 * result.budget,
                    "yref": "paper",
                    "y0": 0,
                    "y1": 1,
                    "line": {"color": "--soft", "width": 1, "dash": "dash"},
                }
            ],
        },
    }


def _map(kind: str, parts: Sequence[QuantizePart]) -> str:
    if not parts:
        return ""
    largest = sorted(parts, key=lambda part: part.candidates[0].bytes, reverse=True)[:_MOST_PARTS]
    shown = [part for part in parts if part in largest]
    some = f" The {len(shown)} largest of {len(parts)}." if len(shown) < len(parts) else ""
    drawn = chart(kind, _harm_map(shown), f"Heat map of {kind} by precision")
    return section(kind.capitalize(), f'<div class="wide"><div class="map">{drawn}</div></div>', _MAP + some)


def _harm_map(parts: Sequence[QuantizePart]) -> Figure:
    labels = [candidate.label for candidate in parts[0].candidates]
    highest = max((c.estimate or 0.0 for part in parts for c in part.candidates), default=0.0)
    top = math.ceil(math.log10(highest)) if highest > 0 else 0
    bottom = top - DECADES
    cells = {
        **heat(
            [
                [
                    None if c.estimate is None or c.label == "fp32" else logarithm(c.estimate, bottom)
                    for c in part.candidates
                ]
                for part in parts
            ]
        ),
        "zmin": bottom,
        "zmax": top,
        "colorscale": [[0, "--harm-low"], [0.5, "--harm-middle"], [1, "--harm-high"]],
        "colorbar": color_bar(
            "harm", [(e, share(10.0**e)) for e in range(bottom, top + 1)] if highest > 0 else []
        ),
        "text": [
            [
                "" if c.label == "fp32" else times(ratio(part.candidates[0].bytes, c.bytes))
                for c in part.candidates
            ]
            for part in parts
        ],
        "customdata": [[_told(part, c) for c in part.candidates] for part in parts],
        "hovertemplate": "%{customdata}<extra></extra>",
    }
    columns = {
        "tickmode": "array",
        "tickvals": list(range(len(labels))),
        "ticktext": [text.replace(" ", "<br>", 1) for text in labels],
        "range": [-0.5, len(labels) - 0.5],
        "showgrid": False,
        "fixedrange": True,
    }
    rows = names_axis([label(part.name) for part in parts])
    layout = {"height": max(110 + 26 * len(parts), 240), "xaxis": columns, "yaxis": rows}
    return {"data": [cells], "layout": {**layout, "shapes": frames([part.chosen for part in parts])}}


def _told(part: QuantizePart, candidate: QuantizeCandidate) -> str:
    about = f"{label(part.name)} as {candidate.label}<br>{bytes_text(candidate.bytes)}, {candidate.us:+,.1f} µs a batch"
    if candidate.harm is None:
        return f"{about}<br>cannot hold its values"
    return f"{about}<br>{_harm_text(candidate.harm)}"


def _harm_text(harm: HarmFigures) -> str:
    return f"NE +{share(harm.expected)} expected, {change(100 * harm.measured, 4)} ± {share(harm.measured_se)} measured"


def _choices(result: QuantizeResult) -> str:
    names = ("table, layer", "rows", "precision", "bytes", "µs", "harm", "why")
    rows = []
    for part in result.parts:
        choice, harm = part.choice, part.choice.harm
        exact = part.candidates[0]
        rows.append(
            [
                escape(part.name),
                cell(NONE if part.rows is None else f"{part.rows:,}"),
                escape(choice.label),
                cell(bytes_text(choice.bytes), times(ratio(exact.bytes, choice.bytes))),
                cell(change(choice.us, 1)),
                cell(NONE)
                if harm is None
                else cell(
                    f"+{share(harm.expected)}",
                    f"{change(100 * harm.measured, 4)} ± {share(harm.measured_se)}",
                ),
                f"<small>{escape(part.reason)}</small>",
            ]
        )
    return table(names, rows, "precisions")


def _attempts(result: QuantizeResult) -> str:
    names = ("attempt", "solved for", "bytes", "predicted", "search half", "verification half")
    rows = []
    for number, attempt in enumerate(result.attempts, start=1):
        halves = [
            cell(NONE)
            if harm is None
            else cell(
                f"+{share(harm.expected)}", f"{change(100 * harm.measured, 4)} ± {share(harm.measured_se)}"
            )
            for harm in (attempt.search, attempt.verification)
        ]
        rows.append(
            [
                str(number),
                cell(f"+{share(attempt.budget)}"),
                cell(bytes_text(attempt.bytes)),
                cell(f"+{share(attempt.predicted)}"),
                *halves,
            ]
        )
    note = (
        "Harms of parts are predicted to add up; each combination was measured itself, and what exceeded the budget "
        "was taken off it for the next. The last one passed on both halves."
    )
    return section("Attempts", table(names, rows, "methods"), note)
