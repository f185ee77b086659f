"""The page: one HTML file with everything in it, for any browser, without a network.

Plotly, the style sheet and the script are inlined; the content security policy forbids the browser
to fetch anything at all.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Sequence
from html import escape
from pathlib import Path

from laconic.errors import ConfigError
from laconic.report import charts, summary
from laconic.report.result import Method, Result, Table

__all__ = ["render", "write_report"]

_MOST_TABLES = 40
_KEYS = "●■◆▲✕★▼⬟"  # the markers of charts.curve_chart, in their order


def write_report(result: Result, path: str | Path) -> None:
    """Write the page, whole or not at all; a file that is there is replaced."""
    path, page = Path(path), render(result)
    if not path.parent.is_dir():
        raise ConfigError(f"report: no folder {str(path.parent)!r} to write into; make it first")
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(page)
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(name, 0o666 & ~mask)
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise


def render(result: Result) -> str:
    """Lay out a result as HTML."""
    here, title = Path(__file__).parent, escape(result.title)
    style, script = ((here / name).read_text(encoding="utf-8") for name in ("page.css", "page.js"))
    methods = result.methods
    body = (
        f"<header><h1>{title}</h1>{summary.facts(result)}</header>"
        f"{summary.headline(methods)}{_summary(methods)}{_steps(methods)}{_bytes(methods)}"
        f"{_accuracy(methods)}{_loss(methods)}{_tables(result.tables)}"
    )
    policy = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data: blob:"
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{title}</title>
<style>
{style}</style>
</head>
<body>
<main>
<noscript><p class="notice">Charts need JavaScript; all figures are in the tables.</p></noscript>
{body}
</main>
<script>{_plotly()}</script>
<script>
{script}</script>
</body>
</html>
"""


def _plotly() -> str:
    try:
        from plotly.offline import get_plotlyjs  # noqa: PLC0415 -- optional
    except ModuleNotFoundError:
        raise ConfigError("report: needs plotly; pip install 'laconic[report]'") from None
    return str(get_plotlyjs())


def _summary(methods: Sequence[Method]) -> str:
    baseline = escape(methods[0].name)
    note = (
        "Step: median, and the range of the middle 80 % of measured steps. Bytes: average for one step and "
        "one rank; below each kind, how many times smaller than before compression"
    )
    compared = f"; below their sum, than {baseline}. AUC and log loss: difference from {baseline} below."
    ending = compared if len(methods) > 1 else "."
    return _section("Summary", summary.method_table(methods), note + ending)


def _steps(methods: Sequence[Method]) -> str:
    counts = sorted({len(method.step_ms) for method in methods})
    several = f"{counts[0]:,}" if len(counts) == 1 else f"{counts[0]:,} to {counts[-1]:,}"
    keys = [("■", "--compute", "compute"), ("■", "--communication", "communication")]
    return _section(
        "Time per step",
        _legend(keys) + _figure("step", charts.step_chart(methods), "Median time per step of each method"),
        f"Median of {several} measured steps a method, warm-up left out. Communication: what a step "
        "takes beyond the same batch on one rank with nothing sent.",
    )


def _bytes(methods: Sequence[Method]) -> str:
    keys = [("■", charts.method_colour(i, len(methods)), method.name) for i, method in enumerate(methods)]
    return _section(
        "Bytes per step",
        _legend(keys) + _figure("bytes", charts.bytes_chart(methods), "Bytes sent in each direction"),
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
    note = (
        "AUC on the evaluation set, exact, one run a method; the axis does not begin at zero. "
        "Seconds: wall time of training on the machine above, evaluation not included."
    )
    return _curves("Accuracy", methods, {"auc-step": by_step, "auc-seconds": by_time}, note)


def _loss(methods: Sequence[Method]) -> str:
    by_step = charts.curve_chart(
        methods, lambda p: p.step, lambda p: p.loss, across_name="step", up_name="log loss"
    )
    by_time = charts.curve_chart(
        methods, lambda p: p.seconds, lambda p: p.loss, across_name="seconds", up_name="log loss"
    )
    note = "Log loss on training samples, averaged since the point before; the axis does not begin at zero."
    return _curves("Training loss", methods, {"loss-step": by_step, "loss-seconds": by_time}, note)


def _curves(
    heading: str, methods: Sequence[Method], figures: dict[str, charts.Figure | None], note: str
) -> str:
    drawn = {name: figure for name, figure in figures.items() if figure is not None}
    if not drawn:
        return ""
    keys = [
        (_KEYS[i % len(_KEYS)], charts.method_colour(i, len(methods)), method.name)
        for i, method in enumerate(methods)
    ]
    across = [figure["layout"]["xaxis"]["title"]["text"] for figure in drawn.values()]
    plots = (
        _figure(name, figure, f"{heading} against {axis}")
        for (name, figure), axis in zip(drawn.items(), across, strict=True)
    )
    return _section(
        heading, f'{_legend(keys, hides=list(drawn))}<div class="pair">{"".join(plots)}</div>', note
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
    return _section(
        "Tables",
        _legend(keys)
        + _figure("tables", charts.table_chart(shown), "Compression ratio and bound of each table"),
        note,
        f"<details><summary>All {len(tables)} tables in figures</summary>{summary.table_table(ordered)}</details>",
    )


def _before(table: Table) -> float:
    return table.bytes_forward_before + table.bytes_backward_before


def _ratio(table: Table) -> float:
    after = table.bytes_forward_after + table.bytes_backward_after
    return _before(table) / after if after else 0.0


def _section(heading: str, content: str, note: str, after: str = "") -> str:
    return f'<section><h2>{heading}</h2>{content}<p class="note">{note}</p>{after}</section>'


def _legend(keys: Sequence[tuple[str, str, str]], hides: Sequence[str] = ()) -> str:
    """Names and their colours; with ``hides``, buttons that hide the trace of their place in these figures."""
    items = []
    for index, (symbol, colour, name) in enumerate(keys):
        inner = (
            f'<span class="key" style="color:var({colour})" aria-hidden="true">{symbol}</span> {escape(name)}'
        )
        if hides:
            data = f'data-trace="{index}" data-figures="{" ".join(hides)}" title="show or hide"'
            inner = f'<button type="button" aria-pressed="true" {data}>{inner}</button>'
        items.append(f"<li>{inner}</li>")
    return f'<ul class="legend">{"".join(items)}</ul>'


def _figure(name: str, figure: charts.Figure, description: str) -> str:
    height = figure["layout"]["height"]
    return (
        f'<div class="chart" id="{name}" role="img" aria-label="{escape(description)}" style="height:{height}px"></div>'
        f'<script type="application/json" data-chart="{name}">{_json(figure)}</script>'
    )


def _json(value: object) -> str:
    """JSON that can stand in a script element whatever is in it."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
