"""What the page of a comparison says in HTML: headline figures, the table of methods, the table of tables."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

from laconic.numerals import NONE, bytes_text, change, decimals, milliseconds, times
from laconic.report.charts import method_color
from laconic.report.document import cards, cell, facts, table
from laconic.report.result import Method, Result, Table, ratio, seed_changes

__all__ = ["circumstances", "headline", "method_table", "table_table"]

_AUC_PLACES = 5
_LOSS_PLACES = 5


def circumstances(result: Result) -> str:
    """Show setting and machine."""
    pairs = [*result.setting.items(), *result.machine.items()]
    return facts((name.replace("_", " "), _value(value)) for name, value in pairs)


def headline(methods: Sequence[Method]) -> str:
    """Three figures of the last method against the first; nothing where there is one method only."""
    first, last = methods[0], methods[-1]
    if first is last:
        return ""
    speed = first.median_ms / last.median_ms
    pace = ("faster", speed) if speed >= 1 else ("slower", 1 / speed)
    sent = ratio(first.bytes_total, last.bytes_total)
    amount = ("more", 1 / sent) if sent and sent < 1 else ("fewer", sent)
    shown = [
        (
            times(pace[1]),
            f"{pace[0]} step",
            f"{milliseconds(first.median_ms)} → {milliseconds(last.median_ms)}",
        ),
        (
            times(amount[1]),
            f"{amount[0]} bytes sent",
            f"{bytes_text(first.bytes_total)} → {bytes_text(last.bytes_total)}",
        ),
    ]
    if first.auc is not None and last.auc is not None:
        both = f"{decimals(first.auc, _AUC_PLACES)} → {decimals(last.auc, _AUC_PLACES)}"
        changes = seed_changes(methods)
        what = f"AUC, mean of {len(changes)} seeds" if changes else "AUC"
        shown.append((change(last.auc - first.auc, _AUC_PLACES), what, both))
    return cards(f"<b>{escape(last.name)}</b> against <b>{escape(first.name)}</b>", shown)


def method_table(methods: Sequence[Method]) -> str:
    """One row a method; small print under a figure says what it is compared with."""
    first = methods[0]
    names = (
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
    )
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
                cell(
                    decimals(method.auc, _AUC_PLACES),
                    _against(method.auc, first.auc, _AUC_PLACES) if i else "",
                ),
                cell(
                    decimals(method.log_loss, _LOSS_PLACES),
                    _against(method.log_loss, first.log_loss, _LOSS_PLACES) if i else "",
                ),
            ]
        )
    return table(names, rows, "methods")


def table_table(tables: Sequence[Table]) -> str:
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


def _against(value: float | None, first: float | None, places: int) -> str:
    return "" if value is None or first is None else change(value - first, places)


def _middle(step_ms: Sequence[float]) -> str:
    """Write the range of the middle 80 % of the steps; of all where they are few."""
    ordered, last = sorted(step_ms), len(step_ms) - 1
    low = milliseconds(ordered[math.floor(0.1 * last)])
    high = milliseconds(ordered[math.ceil(0.9 * last)])
    if low == high:
        return ""
    unit = low[low.index(" ") :]
    return f"{low.removesuffix(unit) if high.endswith(unit) else low}{NONE}{high}"


def _value(value: str | int | float) -> str:
    return value if isinstance(value, str) else f"{value:,}"
