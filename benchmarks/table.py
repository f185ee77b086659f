"""Benchmark results for people: one Rich table per case, made for 100 columns."""

from __future__ import annotations

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from benchmarks.contenders import ONE_BLOCK, OURS
from benchmarks.result import CaseResult, Entry, Figures, Result

_HEADINGS = (
    "ratio",
    "of\nideal",
    "encode\nGB/s",
    "vs\nzstd-1",
    "decode\nGB/s",
    "vs\nzstd-1",
    "error\n/ bound",
)


def render(result: Result) -> RenderableType:
    """Show the machine, a table per case, and how to read them."""
    parts: list[RenderableType] = [Text.assemble(("machine  ", "bold"), str(result.machine))]
    for case in result.cases:
        parts += [Text(), _title(case), _table(case), *_block_share(case)]
    return Group(*parts, Text(), Text(_LEGEND, style="dim"))


_LEGEND = (
    "ratio: float32 bytes / encoded bytes, the best that keeps the bound in green. of ideal: against "
    "rows de-duplicated after quantizing + order-0 entropy. GB/s of float32, one thread, best of all "
    "rounds, allocation and wrappers included; CPU time where a call takes more than 10 ms. "
    "error / bound above 1: the bound is broken."
)


def _title(case: CaseResult) -> Text:
    return Text.assemble(
        (case.name, "bold cyan"),
        f"   {case.rows:,} x {case.dim}   bound {case.asked:g} {case.unit}",
        f" = {case.bound:.3g}" if case.bound != case.asked else "",
        f"   ideal {_ratio(case.ideal_ratio)}",
    )


def _table(case: CaseResult) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False, header_style="dim", show_edge=False, padding=(0, 1, 0, 0))
    table.add_column("codec", min_width=27, vertical="bottom")
    for heading in _HEADINGS:
        table.add_column(heading, justify="right", min_width=8, vertical="bottom")
    best = max((e.figures.ratio for e in case.entries if e.figures and _keeps_bound(e.figures)), default=0.0)
    for entry in case.entries:
        style = "bold" if entry.codec.startswith(OURS) else ""
        table.add_row(entry.codec, *_cells(case, entry, best), style=style)
    return table


def _cells(case: CaseResult, entry: Entry, best: float) -> list[Text]:
    figures, yardstick = entry.figures, case.figures(entry.yardstick)
    if figures is None:
        return [Text("absent", style="dim")]
    return [
        Text(_ratio(figures.ratio), style="bold green" if figures.ratio == best else ""),
        Text(f"{figures.ratio / case.ideal_ratio:.1%}"),
        Text(_speed(figures.encode_gbps)),
        Text(_times(figures.encode_gbps, yardstick.encode_gbps if yardstick else None), style="dim"),
        Text(_speed(figures.decode_gbps)),
        Text(_times(figures.decode_gbps, yardstick.decode_gbps if yardstick else None), style="dim"),
        _error(figures),
    ]


def _block_share(case: CaseResult) -> list[Text]:
    """Compare many small blocks with one, where a case does that."""
    many, one = case.figures(OURS), case.figures(OURS + ONE_BLOCK)
    if many is None or one is None:
        return []
    encode, decode = many.encode_gbps / one.encode_gbps, many.decode_gbps / one.decode_gbps
    return [
        Text.assemble(
            f"{case.blocks:,} blocks in one call reach ",
            (f"{encode:.0%}", "bold"),
            " (encode) and ",
            (f"{decode:.0%}", "bold"),
            " (decode) of one block's speed",
        )
    ]


def _keeps_bound(figures: Figures) -> bool:
    return figures.max_error_over_bound <= 1


def _error(figures: Figures) -> Text:
    error = figures.max_error_over_bound
    if _keeps_bound(figures):
        return Text(f"{error:.3f}")
    shown = f"{error:,.3g}" if error >= 1.0005 else ">1.000"
    return Text(shown, style="red")


def _ratio(ratio: float) -> str:
    return f"{ratio:,.0f}x" if ratio >= 1000 else f"{ratio:.3g}x" if ratio >= 100 else f"{ratio:.2f}x"


def _speed(gbps: float) -> str:
    return f"{gbps:.3f}" if gbps < 1 else f"{gbps:.2f}"


def _times(gbps: float, yardstick: float | None) -> str:
    return f"{gbps / yardstick:.2f}x" if yardstick else "-"
