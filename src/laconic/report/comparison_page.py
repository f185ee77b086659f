"""The page of a comparison of methods of training."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from html import escape
from statistics import fmean, stdev

from laconic.numerals import NONE, bytes_text, change, decimals, milliseconds, times
from laconic.page import Card, Page, cell, chart, largest, legend, pair, section, table
from laconic.report import comparison_charts as charts
from laconic.report.charts import method_color
from laconic.report.result import Comparison, Method, Point, TableFigures, null_changes, ratio, seed_changes

__all__ = ["comparison_page"]

_MOST_TABLES = 40
_KEYS = "●■◆▲✕★▼⬟"  # the markers of comparison_charts.curve_chart, in their order
_PLACES = 5  # of AUC and of log loss


def comparison_page(result: Comparison) -> Page:
    """Make the page that compares methods with the first of them."""
    methods = result.methods
    pairs = [*result.setting.items(), *result.machine.items()]
    return Page(
        title=result.title,
        facts=[
            (name.replace("_", " "), value if isinstance(value, str) else f"{value:,}")
            for name, value in pairs
        ],
        intro=f"<b>{escape(methods[-1].name)}</b> against <b>{escape(methods[0].name)}</b>",
        cards=_cards(methods) if len(methods) > 1 else [],
        sections=[
            _summary(methods),
            _steps(methods),
            _bytes(methods),
            _accuracy(methods),
            _loss(methods),
            _tables(result.tables),
        ],
    )


def _cards(methods: Sequence[Method]) -> list[Card]:
    """Return three figures of the last method against the first."""
    first, last = methods[0], methods[-1]
    speed = first.median_ms / last.median_ms
    pace = ("faster", speed) if speed >= 1 else ("slower", 1 / speed)
    sent = ratio(first.bytes_total, last.bytes_total)
    amount = ("more", 1 / sent) if sent and sent < 1 else ("fewer", sent)
    took = f"{milliseconds(first.median_ms)} → {milliseconds(last.median_ms)}"
    both = f"{bytes_text(first.bytes_total)} → {bytes_text(last.bytes_total)}"
    shown = [
        (times(pace[1]), f"{pace[0]} step", took),
        (times(amount[1]), f"{amount[0]} bytes sent", both),
    ]
    if first.auc is not None and last.auc is not None:
        changes = seed_changes(methods)
        what = f"AUC, mean of {len(changes)} seeds" if changes else "AUC"
        reached = f"{decimals(first.auc, _PLACES)} → {decimals(last.auc, _PLACES)}"
        shown.append((change(last.auc - first.auc, _PLACES), what, reached))
    return shown


def _summary(methods: Sequence[Method]) -> str:
    baseline = escape(methods[0].name)
    note = (
        "Step: median, and the range of the middle 80 % of measured steps. Bytes: average for one step and "
        "one rank; below each kind, how many times smaller than before compression"
    )
    compared = f"; below their sum, than {baseline}. AUC and log loss: difference from {baseline} below."
    ending = compared if len(methods) > 1 else "."
    return section("Summary", _method_table(methods), note + ending)


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
    keys = [("■", method_color(i, len(methods)), method.name) for i, method in enumerate(methods)]
    return section(
        "Bytes per step",
        legend(keys) + chart("bytes", charts.bytes_chart(methods), "Bytes sent in each direction"),
        "What one rank hands to the network in a step, as the trainer counted it; averages over measured "
        "steps and ranks, headers of the network's protocols not included. Linear axis.",
    )


def _accuracy(methods: Sequence[Method]) -> str:
    changes = seed_changes(methods)
    runs = f"mean of {len(changes)} seeds" if changes else "one run a method"
    seconds = "training with the first seed" if changes else "training"
    note = (
        f"AUC on the evaluation set, exact, {runs}; the axis does not begin at zero. {_luck(methods, changes)}"
        f"Seconds: wall time of {seconds} on the machine above, evaluation not included."
    )
    return _curves("Accuracy", methods, "auc", lambda point: point.auc, "AUC", note)


def _luck(methods: Sequence[Method], changes: Sequence[float]) -> str:
    """Say how much the AUC differs between methods by seed, and between seeds alone."""
    if not changes:
        return ""
    first, last = methods[0], methods[-1]
    spread = max(first.seed_auc) - min(first.seed_auc)
    listed = ", ".join(change(value, 4) for value in changes)
    error = stdev(changes) / math.sqrt(len(changes))
    return (
        f"{last.name} less {first.name}, seed by seed: {listed}; their mean is {change(fmean(changes), 4)} with a "
        f"standard error of {error:.4f}. {first.name} alone differs by {spread:.4f} from seed to seed{_null(first)}. "
    )


def _null(method: Method) -> str:
    """Say how far two runs of a method are apart for no reason."""
    found = null_changes(method)
    listed = ", ".join(change(value, 4) for value in found)
    return f", and by {listed} where its first weights differ by a millionth" if found else ""


def _loss(methods: Sequence[Method]) -> str:
    note = "Log loss on training samples, averaged since the point before; the axis does not begin at zero."
    return _curves("Training loss", methods, "loss", lambda point: point.loss, "log loss", note)


def _curves(
    heading: str,
    methods: Sequence[Method],
    name: str,
    up: Callable[[Point], float | None],
    up_name: str,
    note: str,
) -> str:
    """Draw the curves of all methods twice: against steps, and against seconds."""
    by_step = charts.curve_chart(methods, lambda p: p.step, up, across_name="step", up_name=up_name)
    by_time = charts.curve_chart(methods, lambda p: p.seconds, up, across_name="seconds", up_name=up_name)
    if by_step is None or by_time is None:
        return ""
    keys = [
        (_KEYS[i % len(_KEYS)], method_color(i, len(methods)), method.name)
        for i, method in enumerate(methods)
    ]
    plots = (
        chart(f"{name}-{across}", figure, f"{heading} against {across}")
        for across, figure in (("step", by_step), ("seconds", by_time))
    )
    return section(heading, legend(keys, [f"{name}-step", f"{name}-seconds"]) + pair(plots), note)


def _tables(tables: Sequence[TableFigures]) -> str:
    if not tables:
        return ""
    ordered = sorted(tables, key=_ratio, reverse=True)
    shown = sorted(largest(tables, _before, _MOST_TABLES), key=_ratio, reverse=True)
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
        f"<details><summary>All {len(tables)} tables in figures</summary>{_table_table(ordered)}</details>",
    )


def _before(table: TableFigures) -> float:
    return table.bytes_forward_before + table.bytes_backward_before


def _ratio(table: TableFigures) -> float:
    after = table.bytes_forward_after + table.bytes_backward_after
    return _before(table) / after if after else 0.0


def _method_table(methods: Sequence[Method]) -> str:
    """One row a method; small print under a figure says what it is compared with."""
    first = methods[0]
    names = [
        "method",
        "step",
        "speed-up",
        "rows",
        "gradients",
        "ids",
        "dense",
        "all bytes",
        "AUC",
        "log loss",
    ]
    rows = []
    for i, method in enumerate(methods):
        pairs = (
            (method.bytes_forward, method.bytes_forward_before),
            (method.bytes_backward, method.bytes_backward_before),
            (method.bytes_ids, method.bytes_ids_before),
            (method.bytes_dense, method.bytes_dense_before),
        )
        total = times(ratio(first.bytes_total, method.bytes_total)) if i else ""
        rows.append(
            [
                f'<span class="key" style="color:var({method_color(i, len(methods))})">■</span> {escape(method.name)}',
                cell(milliseconds(method.median_ms), _middle(method.step_ms)),
                cell(times(first.median_ms / method.median_ms)),
                *(cell(bytes_text(sent), times(ratio(before, sent))) for sent, before in pairs),
                cell(bytes_text(method.bytes_total), total),
                cell(decimals(method.auc, _PLACES), _against(method.auc, first.auc) if i else ""),
                cell(
                    decimals(method.log_loss, _PLACES), _against(method.log_loss, first.log_loss) if i else ""
                ),
            ]
        )
    return table(names, rows, "methods")


def _table_table(tables: Sequence[TableFigures]) -> str:
    """One row a table, in the order given."""
    names = ("table", "entries", "bound", "rows", "codec of rows", "gradients", "codec of gradients")
    rows = []
    for each in tables:
        forward, backward = each.ratios
        rows.append(
            [
                escape(each.name),
                cell(f"{each.rows:,}"),
                cell(NONE if each.bound is None else f"{each.bound:.3g}"),
                cell(bytes_text(each.bytes_forward_after), times(forward)),
                f"<code>{escape(each.forward)}</code>",
                cell(bytes_text(each.bytes_backward_after), times(backward)),
                f"<code>{escape(each.backward)}</code>",
            ]
        )
    return table(names, rows, "tables")


def _against(value: float | None, first: float | None) -> str:
    return "" if value is None or first is None else change(value - first, _PLACES)


def _middle(step_ms: Sequence[float]) -> str:
    """Write the range of the middle 80 % of the steps; of all where they are few."""
    ordered, last = sorted(step_ms), len(step_ms) - 1
    low = milliseconds(ordered[math.floor(0.1 * last)])
    high = milliseconds(ordered[math.ceil(0.9 * last)])
    if low == high:
        return ""
    unit = low[low.index(" ") :]
    return f"{low.removesuffix(unit) if high.endswith(unit) else low}{NONE}{high}"
