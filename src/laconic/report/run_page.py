"""The page of a training run, from its ``metrics.jsonl``: curves, and what guard and economy did.

::

    {"kind": "train", "step": 20, "loss": 0.61, "auc": 0.68, "samples_per_s": 5120.0, "ratio": 2.6,
     "bytes_before": 886000.0, "bytes_sent": 340000.0, "bytes_dense": 241000.0}
    {"kind": "eval", "step": 40, "auc": 0.71, "log_loss": 0.58, "normalized_entropy": 0.9,
     "samples": 4096}
    {"kind": "decision", "step": 8, "part": "guard", "direction": "rows", "tables": ["c_user"],
     "factor": 0.23, "reason": "narrowed: costs 0.05% of 0.06% of the loss, ..."}
    {"kind": "decision", "step": 64, "part": "economy", "direction": "backward", "table": "c_age",
     "old": "bounded", "new": "exact", "reason": "the link is faster than the codec: ..."}
    {"kind": "warning", "step": 0, "line": "compression.dense: 'large' is meant for ..."}
    {"kind": "end", "step": 60, "ended_by": "epochs", "epochs": 1.0,
     "line": "ended after 60 steps, at the end of ..."}

Every entry is one line (shown here on two where it is long). Entries of other kinds and further
fields are ignored. The last line of a run that is still training may be incomplete; it is left out.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from laconic.config import Count, Maybe, Text, explained
from laconic.errors import FormatError
from laconic.numerals import NONE, bytes_text, decimals, plain, times
from laconic.page import Card, Page, cell, chart, pair, section, table
from laconic.report.charts import scatter

__all__ = ["Decided", "Ended", "Evaluated", "RunRecord", "Trained", "Warned", "read_run_result", "run_page"]

_MOST_NAMES = 3
_MOST_SHOWN = 2000
_DECISIONS = (
    "In the order of steps. Tables that changed at one step for the same kind of reason stand in one line, with the "
    "evidence of the first; below, each by itself. Factors multiply bounds, which get narrower below 1; otherwise: what "
    "a table traveled as before and after."
)
_NAMES = ("step", "by", "direction", "tables", "change", "evidence")


class _Entry(BaseModel):
    """One line of the file; fields that the page does not show are ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    step: Count


class Trained(_Entry):
    """Figures of training since the entry before."""

    loss: Maybe = None
    auc: Maybe = None
    samples_per_s: Maybe = None
    ratio: Maybe = None
    """Bytes before compression over bytes sent, since the start.

    An entry without ``bytes_dense`` leaves dense gradients out.
    """
    bytes_before: Maybe = None
    """All bytes of rank 0 before compression, per step."""
    bytes_sent: Maybe = None
    """All bytes that rank 0 sent, per step."""
    bytes_dense: Maybe = None
    """Bytes of dense gradients among those that rank 0 sent, per step."""


class Evaluated(_Entry):
    """Figures on all evaluation samples."""

    auc: Maybe = None
    log_loss: Maybe = None
    normalized_entropy: Maybe = None
    samples: Count
    positives: Count | None = None
    """Number of samples with label 1; metrics of older runs do not have it."""

    @property
    def one_class(self) -> str | None:
        """Say which label all samples have, where AUC is undefined for that reason; else None."""
        if self.positives is None or not self.samples or 0 < self.positives < self.samples:
            return None
        return f"undefined: all {self.samples:,} labels are {1 if self.positives else 0}"


class Decided(_Entry):
    """One change of how tables travel, and the evidence for it."""

    part: Text
    """Which part of the policy decided: guard or economy."""
    direction: str | None = None
    table: Text | None = None
    tables: tuple[Text, ...] = ()
    factor: Annotated[float, Field(ge=0)] | None = None
    """Factor by which the guard multiplied bounds."""
    old: str | None = None
    new: str | None = None
    reason: str

    @property
    def covered(self) -> tuple[str, ...]:
        """Names of the tables that changed; empty: all of them."""
        return (*self.tables, *(() if self.table is None else (self.table,)))

    @property
    def sent(self) -> Literal["rows", "gradients"]:
        """What travels differently, in the words of the page."""
        return "gradients" if self.direction in ("gradients", "backward") else "rows"


class Ended(_Entry):
    """Which limit ended the run, or ended it for the time until it was resumed."""

    line: Text


class Warned(_Entry):
    """A warning about something doubtful in the run's settings."""

    line: Text


class Rounded(_Entry):
    """What rounding is believed to have cost the model."""

    line: str


class RunRecord(BaseModel):
    """All that the page shows of a run."""

    model_config = ConfigDict(frozen=True)

    title: Text
    trained: tuple[Trained, ...]
    evaluated: tuple[Evaluated, ...]
    decided: tuple[Decided, ...]
    ended: tuple[Ended, ...] = ()
    warned: tuple[Warned, ...] = ()
    rounded: tuple[Rounded, ...] = ()


_KINDS: dict[str, type[_Entry]] = {
    "train": Trained,
    "eval": Evaluated,
    "decision": Decided,
    "end": Ended,
    "warning": Warned,
    "rounding": Rounded,
}


def read_run_result(path: str | Path) -> RunRecord:
    """Read the metrics of a run, or those in its folder; FormatError names a line that is wrong."""
    path = Path(path)
    if path.is_dir():
        path = path / "metrics.jsonl"
    if not path.is_file():
        raise FormatError(f"{path}: no such file; a run writes it into its train.out")
    entries: dict[str, list[Any]] = {kind: [] for kind in _KINDS}
    lines = path.read_text(encoding="utf-8", errors="replace").split("\n")
    for number, line in enumerate(lines[:-1], start=1):  # what follows the last line break is not finished
        if not line.strip():
            continue
        kind, entry = _entry(line, f"{path}, line {number}")
        if entry is not None:
            entries[kind].append(entry)
    if not any(entries[kind] for kind in ("train", "eval", "decision")):
        raise FormatError(f"{path}: no metrics in it yet; a run writes them every train.log_every steps")
    return RunRecord(
        title=str(path.parent.resolve().name or path.parent),
        trained=tuple(entries["train"]),
        evaluated=tuple(entries["eval"]),
        decided=tuple(entries["decision"]),
        ended=tuple(entries["end"]),
        warned=tuple(entries["warning"]),
        rounded=tuple(entries["rounding"]),
    )


def _entry(line: str, where: str) -> tuple[str, _Entry | None]:
    try:
        tree = json.loads(line)
    except ValueError as error:
        raise FormatError(f"{where}: not JSON: {error}") from None
    if not isinstance(tree, dict) or not isinstance(tree.get("kind"), str):
        raise FormatError(f"{where}: expected an object with a kind, got {line[:80]!r}")
    of_kind = _KINDS.get(tree["kind"])
    if of_kind is None:
        return tree["kind"], None
    try:
        return tree["kind"], of_kind.model_validate(tree)
    except ValidationError as error:
        raise FormatError(explained(error, of_kind, where, noun="field")) from None


def run_page(result: RunRecord) -> Page:
    """Make the page of a run."""
    return Page(
        title=result.title,
        facts=_facts(result),
        intro="<b>At the end</b> of what is written down",
        cards=_cards(result),
        sections=[_curves(result), _decisions(result.decided)],
    )


def _facts(result: RunRecord) -> list[tuple[str, str]]:
    entries = (*result.trained, *result.evaluated, *result.decided, *result.ended)
    steps = max((entry.step for entry in entries), default=0)
    shown = [("steps", f"{steps:,}")]
    if result.ended and result.ended[-1].step >= steps:  # it may have been resumed since
        shown.append(("end", result.ended[-1].line))
    if result.rounded:
        shown.append(("harm", result.rounded[-1].line))
    shown += [("warning", line) for line in dict.fromkeys(warned.line for warned in result.warned)]
    pace = next((entry.samples_per_s for entry in reversed(result.trained) if entry.samples_per_s), None)
    if pace is not None:
        shown.append(("samples a second", plain(pace)))
    for part in ("guard", "economy"):
        if count := sum(decided.part == part for decided in result.decided):
            shown.append((f"decisions of the {part}", f"{count:,}"))
    return shown


def _cards(result: RunRecord) -> list[Card]:
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
    return shown


def _what_was_sent(last: Trained) -> str:
    """Say which bytes the ratio counts; metrics of older runs leave dense gradients out."""
    if last.bytes_before is None or last.bytes_sent is None or last.bytes_dense is None:
        return "rows, gradients and ids only; dense gradients are not counted"
    return (
        f"{bytes_text(last.bytes_before)} → {bytes_text(last.bytes_sent)} a step, all that rank 0 sent; "
        f"{bytes_text(last.bytes_dense)} of it are dense gradients"
    )


def _curves(result: RunRecord) -> str:
    marks = sorted({decided.step for decided in result.decided})
    curves = (
        ("loss", "training log loss", [(entry.step, entry.loss) for entry in result.trained]),
        ("ratio", "times fewer bytes", [(entry.step, entry.ratio) for entry in result.trained]),
        ("auc", "AUC, evaluation", [(entry.step, entry.auc) for entry in result.evaluated]),
    )
    plots = "".join(_line(name, up, points, marks) for name, up, points in curves)
    if not plots:
        return ""
    note = "Against steps; axes do not begin at zero."
    if marks:
        note += " Vertical lines: steps at which something was decided."
    return section("Training", pair(plots), note)


def _line(name: str, up: str, points: Sequence[tuple[int, float | None]], marks: Sequence[int]) -> str:
    known = [(step, value) for step, value in points if value is not None]
    if len(known) < 2:  # one point is no curve
        return ""
    trace = scatter(
        "lines",
        [step for step, _ in known],
        [value for _, value in known],
        f"step %{{x:,}}<br>{up} %{{y:.5f}}",
        name=up,
        line={"color": "--method-1", "width": 2},
    )
    mark = {"type": "line", "xref": "x", "yref": "paper", "y0": 0, "y1": 1, "layer": "below"}
    line = {"color": "--line", "width": 1}
    layout = {
        "height": 300,
        "xaxis": {"title": {"text": "step"}, "rangemode": "tozero"},
        "yaxis": {"title": {"text": up}, "automargin": True, "tickformat": "~g"},
        "shapes": [{**mark, "x0": step, "x1": step, "line": line} for step in marks],
    }
    return chart(name, {"data": [trace], "layout": layout}, f"{up} against steps")


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
    """Return what the decisions of one row share; only figures in their reasons may differ."""
    words = " ".join(word for word in decided.reason.split(":")[0].split() if not any(map(str.isdigit, word)))
    return decided.step, decided.part, decided.sent, decided.old, decided.new, words


def _row(alike: Sequence[Decided]) -> list[str]:
    first = alike[0]
    covered = [name for decided in alike for name in decided.covered]
    shown = ", ".join(escape(name) for name in covered[:_MOST_NAMES]) or "all"
    if len(covered) > _MOST_NAMES:
        shown += f" and {len(covered) - _MOST_NAMES} more"
    return [
        f"{first.step:,}",
        escape(first.part),
        first.sent,
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
