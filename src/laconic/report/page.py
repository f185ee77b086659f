"""The page of a comparison of methods."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from statistics import fmean, stdev

from laconic.numerals import change
from laconic.report import charts, summary
from laconic.report.document import Figure, chart, document, legend, section
from laconic.report.result import Method, Result, Table, seed_changes

__all__ = ["render"]

_MOST_TABLES = 40
_KEYS = "●■◆▲✕★▼⬟"  # the markers of charts.curve_chart, in their order


def render(result: Result) -> str:
    """Lay out a result as HTML."""
    methods = result.methods
    return document(
        result.title,
        f"<header><h1>{escape(result.title)}</h1>{summary.circumstances(result)}</header>"
        f"{summary.headline(methods)}{_summary(methods)}{_steps(methods)}{_bytes(methods)}"
        f"{_accuracy(methods)}{_loss(methods)}{_tables(result.tables)}",
    )


def _summary(methods: Sequence[Method]) -> str:
    baseline = escape(methods[0].name)
    note = (
        "Step: median, and the range of the middle 80 % of measured steps. Bytes: average for one step and "
        "one rank; below each kind, how many times smaller than before compression"
    )
    compared = f"; below their sum, than {baseline}. AUC and log loss: difference from {baseline} below."
    ending = compared if len(methods) > 1 else "."
    return section("Summary", summary.method_table(methods), note + ending)


def _steps(methods: Sequence[Method]) -> str:
    counts = sorted({len(method.step_ms) for method in methods})
    several = f"{counts[0]:,}" if len(counts) == 1 else f"{counts[0]:,} to {counts[-1]:,}"
    keys = [("■", "--compute", "compute"), ("■", "--communication", "communication")]
    return section(
        "Time per step",
        legend(keys) + chart("step", charts.step_chart(methods), "Median time per step of each method"),
        f"Median of {several} measured steps a method, warm-up left out. Communication: what a step "
        "takes beyond the same batch on one rank with nothing sent.",
    )


def _bytes(methods: Sequence[Method]) -> str:
    keys = [("■", charts.method_color(i, len(methods)), method.name) for i, method in enumerate(methods)]
    return section(
        "Bytes per step",
        legend(keys) + chart("bytes", charts.bytes_chart(methods), "Bytes sent in each direction"),
        "What one rank hands to the network in a step, as the trainer counted it; averages over measured "
        "steps and ranks, headers of the network's protocols not included. Linear axis.",
    )


def _accuracy(methods: Sequence[Method]) -> str:
    by_step = charts.curve_chart(
        methods, lambda p: p.step, lambda p: p.auc, across_name="step", up_name="AUC"
    )
    by_time = charts.curve_chart(
        methods, lambda p: p.seconds, lambda p: p.auc, across_name="seconds", up_name="AUC"
    )
    changes = seed_changes(methods)
    runs = f"mean of {len(changes)} seeds" if changes else "one run a method"
    seconds = "training with the first seed" if changes else "training"
    note = (
        f"AUC on the evaluation set, exact, {runs}; the axis does not begin at zero. {_luck(methods, changes)}"
        f"Seconds: wall time of {seconds} on the machine above, evaluation not included."
    )
    return _curves("Accuracy", methods, {"auc-step": by_step, "auc-seconds": by_time}, note)


def _luck(methods: Sequence[Method], changes: Sequence[float]) -> str:
    """Say what a reader needs to tell a loss from luck: differences of every seed, and what seeds alone do."""
    if not changes:
        return ""
    first, last = methods[0], methods[-1]
    spread = max(first.seed_auc) - min(first.seed_auc)
    listed = ", ".join(change(value, 4) for value in changes)
    error = stdev(changes) / math.sqrt(len(changes))
    return (
        f"{last.name} less {first.name}, seed by seed: {listed}; their mean is {change(fmean(changes), 4)} with a "
        f"standard error of {error:.4f}. {first.name} alone differs by {spread:.4f} from seed to seed. "
    )


def _loss(methods: Sequence[Method]) -> str:
    by_step = charts.curve_chart(
        methods, lambda p: p.step, lambda p: p.loss, across_name="step", up_name="log loss"
    )
    by_time = charts.curve_chart(
        methods, lambda p: p.seconds, lambda p: p.loss, across_name="seconds", up_name="log loss"
    )
    note = "Log loss on training samples, averaged since the point before; the axis does not begin at zero."
    return _curves("Training loss", methods, {"loss-step": by_step, "loss-seconds": by_time}, note)


def _curves(heading: str, methods: Sequence[Method], figures: dict[str, Figure | None], note: str) -> str:
    drawn = {name: figure for name, figure in figures.items() if figure is not None}
    if not drawn:
        return ""
    keys = [
        (_KEYS[i % len(_KEYS)], charts.method_color(i, len(methods)), method.name)
        for i, method in enumerate(methods)
    ]
    across = [figure["layout"]["xaxis"]["title"]["text"] for figure in drawn.values()]
    plots = (
        chart(name, figure, f"{heading} against {axis}")
        for (name, figure), axis in zip(drawn.items(), across, strict=True)
    )
    return section(
        heading, f'{legend(keys, hides=list(drawn))}<div class="pair">{"".join(plots)}</div>', note
    )


def _tables(tables: Sequence[Table]) -> str:
    if not tables:
        return ""
    ordered = sorted(tables, key=_ratio, reverse=True)
    largest = sorted(tables, key=_before, reverse=True)[:_MOST_TABLES]
    shown = [table for table in ordered if table in largest]
    left_out = len(tables) - len(shown)
    keys = [("●", "--forward", "rows"), ("◆", "--backward", "gradients")]
    if any(table.bound for table in shown):
        keys.append(("❙", "--bound", "bound"))
    note = (
        "Bytes before compression over bytes after; tables are sorted by the ratio of both directions together. "
        "The bound is the codec's own, on values of rows. Logarithmic axes."
    )
    if left_out:
        note += f" The {len(shown)} tables with most traffic; {left_out} more are in the list below."
    return section(
        "Tables",
        legend(keys)
        + chart("tables", charts.table_chart(shown), "Compression ratio and bound of each table"),
        note,
        f"<details><summary>All {len(tables)} tables in figures</summary>{summary.table_table(ordered)}</details>",
    )


def _before(table: Table) -> float:
    return table.bytes_forward_before + table.bytes_backward_before


def _ratio(table: Table) -> float:
    after = table.bytes_forward_after + table.bytes_backward_after
    return _before(table) / after if after else 0.0
