"""The page of a run: how it trained, and what guard, economy and schedule decided, with their evidence."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from laconic.numerals import NONE, bytes_text, decimals, plain, times
from laconic.report.document import Figure, cards, cell, chart, document, facts, section, table
from laconic.report.run_result import Decided, RunResult, Trained

__all__ = ["render_run"]

_MOST_NAMES = 3
_MOST_SHOWN = 2000
_DECISIONS = (
    "In the order of steps. Tables that changed at one step for the same kind of reason stand in one line, with the "
    "evidence of the first; below, each by itself. Factors multiply bounds, which get narrower below 1; otherwise: what "
    "a table traveled as before and after."
)
_NAMES = ("step", "by", "direction", "tables", "change", "evidence")


def render_run(result: RunResult) -> str:
    """Lay out a run as HTML."""
    return document(
        result.title,
        f"<header><h1>{escape(result.title)}</h1>{_facts(result)}</header>{_headline(result)}"
        f"{_curves(result)}{_decisions(result.decided)}",
    )


def _facts(result: RunResult) -> str:
    steps = max(
        (entry.step for entry in (*result.trained, *result.evaluated, *result.decided, *result.ended)),
        default=0,
    )
    shown = [("steps", f"{steps:,}")]
    if result.ended and result.ended[-1].step >= steps:  # it may have been resumed since
        shown.append(("end", result.ended[-1].line))
    shown += [("warning", line) for line in dict.fromkeys(warned.line for warned in result.warned)]
    pace = next((entry.samples_per_s for entry in reversed(result.trained) if entry.samples_per_s), None)
    if pace is not None:
        shown.append(("samples a second", plain(pace)))
    named = {
        "guard": "decisions of the guard",
        "economy": "decisions of the economy",
    }
    for part, name in named.items():
        if count := sum(decided.part == part for decided in result.decided):
            shown.append((name, f"{count:,}"))
    return facts(shown)


def _headline(result: RunResult) -> str:
    shown = []
    if result.evaluated:
        last = result.evaluated[-1]
        where = f"on {last.samples:,} samples after step {last.step:,}"
        entropy = f"normalized entropy {decimals(last.normalized_entropy, 4)}"
        if last.one_class is not None:
            where, entropy = f"{last.one_class}, after step {last.step:,}", where
        shown.append((decimals(last.auc, 5), "AUC", where))
        shown.append((decimals(last.log_loss, 5), "log loss", entropy))
    last_sent = next((entry for entry in reversed(result.trained) if entry.ratio), None)
    if last_sent is not None:
        shown.append((times(last_sent.ratio), "fewer bytes sent", _what_was_sent(last_sent)))
    return cards("<b>At the end</b> of what is written down", shown) if shown else ""


def _what_was_sent(last: Trained) -> str:
    """Say what the ratio counts; metrics of older runs leave dense gradients out."""
    if last.bytes_before is None or last.bytes_sent is None or last.bytes_dense is None:
        return "rows, gradients and ids only; dense gradients are not counted"
    return (
        f"{bytes_text(last.bytes_before)} → {bytes_text(last.bytes_sent)} a step, all that rank 0 sent; "
        f"{bytes_text(last.bytes_dense)} of it are dense gradients"
    )


def _curves(result: RunResult) -> str:
    marks = sorted({decided.step for decided in result.decided})
    drawn = [
        _line("loss", "training log loss", [(e.step, e.loss) for e in result.trained], "--method-1", marks),
        _line("ratio", "times fewer bytes", [(e.step, e.ratio) for e in result.trained], "--method-1", marks),
        _line("auc", "AUC, evaluation", [(e.step, e.auc) for e in result.evaluated], "--method-1", marks),
    ]
    plots = "".join(plot for plot in drawn if plot)
    if not plots:
        return ""
    note = "Against steps; axes do not begin at zero."
    if marks:
        note += " Vertical lines: steps at which something was decided."
    return section("Training", f'<div class="pair">{plots}</div>', note)


def _line(
    name: str, up: str, points: Sequence[tuple[int, float | None]], color: str, marks: Sequence[int]
) -> str:
    known = [(step, value) for step, value in points if value is not None]
    if len(known) < 2:  # one point is no curve
        return ""
    figure: Figure = {
        "data": [
            {
                "type": "scatter",
                "mode": "lines",
                "name": up,
                "x": [step for step, _ in known],
                "y": [value for _, value in known],
                "line": {"color": color, "width": 2},
                "hovertemplate": f"step %{{x:,}}<br>{up} %{{y:.5f}}<extra></extra>",
            }
        ],
        "layout": {
            "height": 300,
            "xaxis": {"title": {"text": "step"}, "rangemode": "tozero"},
            "yaxis": {"title": {"text": up}, "automargin": True, "tickformat": "~g"},
            "shapes": [
                {
                    "type": "line",
                    "xref": "x",
                    "yref": "paper",
                    "x0": step,
                    "x1": step,
                    "y0": 0,
                    "y1": 1,
                    "layer": "below",
                    "line": {"color": "--line", "width": 1},
                }
                for step in marks
            ],
        },
    }
    return chart(name, figure, f"{up} against steps")


def _decisions(decided: Sequence[Decided]) -> str:
    if not decided:
        none = "Without a guard or an economy there are none."
        return section("Decisions", "<p>None.</p>", none)
    shown, note = decided[-_MOST_SHOWN:], _DECISIONS
    if len(shown) < len(decided):
        note += f" The last {len(shown):,} of {len(decided):,}; metrics.jsonl has all."
    lines: dict[tuple[object, ...], list[Decided]] = {}
    for each in shown:
        lines.setdefault(_kind(each), []).append(each)
    every = table(_NAMES, [_row([each]) for each in shown], "decisions")
    return section(
        "Decisions",
        table(_NAMES, [_row(alike) for alike in lines.values()], "decisions"),
        note,
        f"<details><summary>Each of {len(shown):,} decisions with its own evidence</summary>{every}</details>",
    )


def _kind(decided: Decided) -> tuple[object, ...]:
    """Return what decisions of one line share; reasons are alike where only their figures differ."""
    words = " ".join(word for word in decided.reason.split(":")[0].split() if not any(map(str.isdigit, word)))
    return decided.step, decided.part, decided.way, decided.old, decided.new, words


def _row(alike: Sequence[Decided]) -> list[str]:
    first = alike[0]
    covered = [name for decided in alike for name in decided.covered]
    shown = ", ".join(escape(name) for name in covered[:_MOST_NAMES]) or "all"
    if len(covered) > _MOST_NAMES:
        shown += f" and {len(covered) - _MOST_NAMES} more"
    return [
        f"{first.step:,}",
        escape(first.part),
        first.way,
        shown,
        cell(_change(alike)),
        f"<small>{escape(first.reason)}</small>",
    ]


def _change(alike: Sequence[Decided]) -> str:
    first = alike[0]
    if first.new is not None:
        return f"{escape(first.old or NONE)} → {escape(first.new)}"
    factors = sorted(decided.factor for decided in alike if decided.factor is not None)
    if not factors:
        return NONE
    low, high = (f"times {plain(factor)}" for factor in (factors[0], factors[-1]))
    return low if low == high else f"{low} to {high.removeprefix('times ')}"
