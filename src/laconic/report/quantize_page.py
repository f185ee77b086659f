"""The page of ``laconic quantize``: precisions of all parts, their alternatives, other budgets."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

from laconic.numerals import NONE, bytes_text, change, share, three, times
from laconic.page import Card, Figure, Page, cell, chart, largest, legend, pair, section, table, wide
from laconic.quantize.formats.result import (
    HarmFigures,
    Objective,
    QuantizeCandidate,
    QuantizePart,
    QuantizeResult,
)
from laconic.report.charts import (
    byte_unit,
    columns_axis,
    frames,
    harm_heat,
    label,
    logarithmic,
    names_axis,
    scatter,
)
from laconic.report.result import ratio

__all__ = ["quantize_page"]

_MOST_PARTS = 60
_MAP = (
    "Color: increase of normalized entropy (NE) when only this part is in that precision, as a share of NE, logarithmic; "
    "empty where the format cannot hold the values. Figures: how many times smaller than fp32. Framed: the choice."
)
_CURVE = (
    "What the sum of measured harms predicts for other budgets, solved for size and for latency; the line across is the "
    "budget of this run. Points may lie left of their budget: choices come in steps."
)


def quantize_page(result: QuantizeResult) -> Page:
    """Make the page of a search."""
    counts = result.samples
    return Page(
        title=f"{result.title} in low precision",
        facts=[
            ("objective", result.objective),
            ("budget", f"NE +{share(result.budget)}"),
            ("candidates measured on", f"{counts.probe:,} samples"),
            ("searched with", f"{counts.search:,}"),
            ("verified on", f"{counts.verification:,} never searched with"),
        ],
        intro="<b>Verified</b> on unseen samples, as the engine serves it",
        cards=_cards(result),
        sections=[
            _curves(result),
            _map("tables", [part for part in result.parts if part.kind == "table"]),
            _map("layers", [part for part in result.parts if part.kind == "layer"]),
            section(
                "Choices",
                _precisions(result),
                "Harm: expected, and below what was measured on labels, give or take.",
            ),
            _attempts(result),
        ],
    )


def _cards(result: QuantizeResult) -> list[Card]:
    exact, low, harm = result.exact, result.low, result.harm
    return [
        (share(result.share), "of the size", f"{bytes_text(exact.bytes)} → {bytes_text(low.bytes)}"),
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
    ]


def _curves(result: QuantizeResult) -> str:
    if not result.pareto:
        return ""
    plots = (
        chart("pareto-size", _curve(result, "size"), "Size against harm"),
        chart("pareto-latency", _curve(result, "latency"), "Latency against harm"),
    )
    keys = [
        ("●", "--method-1", "for size"),
        ("■", "--method-2", "for latency"),
        ("◆", "--ink", "this artifact"),
    ]
    return section("What a budget buys", legend(keys) + pair(plots), _CURVE)


def _curve(result: QuantizeResult, up: Objective) -> Figure:
    """Draw a line for each objective: harm across, bytes or microseconds up."""
    unit, scale = byte_unit(max(result.exact.bytes, 1.0)) if up == "size" else ("µs a batch", 1.0)

    def height(bytes_: float, us: float) -> float:
        return bytes_ / scale if up == "size" else result.exact.us + us

    data: list[dict[str, Any]] = []
    looks = (("size", "--method-1", "circle"), ("latency", "--method-2", "square"))
    for objective, color, symbol in looks:
        points = [point for point in result.pareto if point.objective == objective and point.harm > 0]
        trace = scatter(
            "lines+markers",
            [100 * point.harm for point in points],
            [height(point.bytes, point.us) for point in points],
            f"for {objective}<br>%{{customdata[0]}}, %{{customdata[1]}}<br>NE +%{{customdata[2]}} of %{{customdata[3]}}",
            line={"color": color, "width": 2, "shape": "hv"},
            marker={"color": color, "size": 7, "symbol": symbol},
            customdata=[
                [bytes_text(p.bytes), f"{p.us:+,.0f} µs", share(p.harm), share(p.budget)] for p in points
            ],
        )
        data.append(trace)
    low = result.low
    artifact = scatter(
        "markers",
        [100 * max(result.harm.expected, 1e-9)],
        [low.bytes / scale if up == "size" else low.us],
        f"this artifact<br>{bytes_text(low.bytes)}, {three(low.us)} µs",
        marker={"color": "--ink", "size": 11, "symbol": "diamond"},
    )
    data.append(artifact)
    budget = 100 * result.budget
    across = [x for trace in data for x in trace["x"]] + [budget]
    line = {"color": "--soft", "width": 1, "dash": "dash"}
    layout = {
        "height": 340,
        "xaxis": {"title": {"text": "expected increase of NE, %"}, **logarithmic(across)},
        "yaxis": {"title": {"text": unit}, "rangemode": "tozero", "automargin": True},
        "shapes": [
            {"type": "line", "x0": budget, "x1": budget, "yref": "paper", "y0": 0, "y1": 1, "line": line}
        ],
    }
    return {"data": data, "layout": layout}


def _map(kind: str, parts: Sequence[QuantizePart]) -> str:
    if not parts:
        return ""
    shown = largest(parts, lambda part: part.candidates[0].bytes, _MOST_PARTS)
    some = f" The {len(shown)} largest of {len(parts)}." if len(shown) < len(parts) else ""
    drawn = wide(kind, _harm_map(shown), f"Heat map of {kind} by precision")
    return section(kind.capitalize(), drawn, _MAP + some)


def _harm_map(parts: Sequence[QuantizePart]) -> Figure:
    labels = [candidate.label for candidate in parts[0].candidates]
    cells = harm_heat(
        [[None if c.label == "fp32" else c.estimate for c in part.candidates] for part in parts],
        [
            [
                "" if c.label == "fp32" else times(ratio(part.candidates[0].bytes, c.bytes))
                for c in part.candidates
            ]
            for part in parts
        ],
        [[_hover(part, c) for c in part.candidates] for part in parts],
    )
    layout = {
        "height": max(110 + 26 * len(parts), 240),
        "xaxis": columns_axis([text.replace(" ", "<br>", 1) for text in labels]),
        "yaxis": names_axis([label(part.name) for part in parts]),
        "shapes": frames(part.chosen for part in parts),
    }
    return {"data": [cells], "layout": layout}


def _hover(part: QuantizePart, candidate: QuantizeCandidate) -> str:
    about = f"{label(part.name)} as {candidate.label}<br>{bytes_text(candidate.bytes)}, {candidate.us:+,.1f} µs a batch"
    if candidate.harm is None:
        return f"{about}<br>cannot hold its values"
    expected, measured = _harm_text(candidate.harm)
    return f"{about}<br>NE {expected} expected, {measured} measured"


def _harm_text(harm: HarmFigures) -> tuple[str, str]:
    """Write the expected harm, and the one that was measured on labels."""
    return f"+{share(harm.expected)}", f"{change(100 * harm.measured, 4)} ± {share(harm.measured_se)}"


def _harm_cell(harm: HarmFigures | None) -> str:
    return cell(NONE) if harm is None else cell(*_harm_text(harm))


def _precisions(result: QuantizeResult) -> str:
    names = ("table, layer", "rows", "precision", "bytes", "µs", "harm", "why")
    rows = [
        [
            escape(part.name),
            cell(NONE if part.rows is None else f"{part.rows:,}"),
            escape(part.precision.label),
            cell(
                bytes_text(part.precision.bytes), times(ratio(part.candidates[0].bytes, part.precision.bytes))
            ),
            cell(change(part.precision.us, 1)),
            _harm_cell(part.precision.harm),
            f"<small>{escape(part.reason)}</small>",
        ]
        for part in result.parts
    ]
    return table(names, rows, "precisions")


def _attempts(result: QuantizeResult) -> str:
    names = ("attempt", "solved for", "bytes", "predicted", "search half", "verification half")
    rows = [
        [
            str(number),
            cell(f"+{share(attempt.budget)}"),
            cell(bytes_text(attempt.bytes)),
            cell(f"+{share(attempt.predicted)}"),
            _harm_cell(attempt.search),
            _harm_cell(attempt.verification),
        ]
        for number, attempt in enumerate(result.attempts, start=1)
    ]
    note = (
        "Harms of parts are predicted to add up; each combination was measured itself, and what exceeded the budget "
        "was taken off it for the next. The last one passed on both halves."
    )
    return section("Attempts", table(names, rows, "methods"), note)
