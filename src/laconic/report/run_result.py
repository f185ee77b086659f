"""What a run wrote down while it trained, from its ``metrics.jsonl``, and these classes.

::

    {"kind": "train", "step": 20, "loss": 0.61, "auc": 0.68, "samples_per_s": 5120.0, "ratio": 2.6,
     "bytes_before": 886000.0, "bytes_sent": 340000.0, "bytes_dense": 241000.0}
    {"kind": "eval", "step": 40, "auc": 0.71, "log_loss": 0.58, "normalized_entropy": 0.9, "samples": 4096}
    {"kind": "decision", "step": 8, "part": "guard", "direction": "rows", "tables": ["c_user"],
     "factor": 0.23, "reason": "error is 0.77 of the signal, more than 0.05"}
    {"kind": "decision", "step": 64, "part": "economy", "direction": "backward", "table": "c_age",
     "old": "bounded", "new": "exact", "reason": "the link is faster than the codec: ..."}
    {"kind": "warning", "step": 0, "line": "dense.send: 'large' is meant for ..."}
    {"kind": "end", "step": 60, "ended_by": "epochs", "epochs": 1.0, "line": "ended after 60 steps, at the end of ..."}

One entry a line (shown here on two where it is long). Entries of other kinds, and further fields, are
for others. Of a run that is still training, the last line may be half of one; it is left out.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from laconic.config import Count, Maybe, Text, explained
from laconic.errors import FormatError

__all__ = ["Decided", "Ended", "Evaluated", "RunResult", "Trained", "Warned", "read_run_result"]


class _Entry(BaseModel):
    """One line; fields that the page does not show are none of its business."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    step: Count


class Trained(_Entry):
    """Training since the entry before."""

    loss: Maybe = None
    auc: Maybe = None
    samples_per_s: Maybe = None
    ratio: Maybe = None
    """Bytes before compression over those sent, since the start; without ``bytes_dense``, dense gradients are left out."""
    bytes_before: Maybe = None
    """All bytes of rank 0 before compression, per step."""
    bytes_sent: Maybe = None
    """All bytes that rank 0 sent, per step."""
    bytes_dense: Maybe = None
    """Dense gradients among them."""


class Evaluated(_Entry):
    """All evaluation samples."""

    auc: Maybe = None
    log_loss: Maybe = None
    normalized_entropy: Maybe = None
    samples: Count
    positives: Count | None = None
    """Samples of label 1; metrics of older runs do not have it."""

    @property
    def one_class(self) -> str | None:
        """Say which label all samples have, where AUC is undefined for that."""
        if self.positives is None or not self.samples or 0 < self.positives < self.samples:
            return None
        return f"undefined: all {self.samples:,} labels are {1 if self.positives else 0}"


class Decided(_Entry):
    """One change of how tables travel, and the evidence for it."""

    part: Text
    """Who decided: guard or economy."""
    direction: str | None = None
    table: Text | None = None
    tables: tuple[Text, ...] = ()
    factor: Annotated[float, Field(ge=0)] | None = None
    """By which the guard multiplied bounds."""
    old: str | None = None
    new: str | None = None
    reason: str

    @property
    def covered(self) -> tuple[str, ...]:
        """Tables that it concerns; none: all of them."""
        return (*self.tables, *(() if self.table is None else (self.table,)))

    @property
    def way(self) -> Literal["rows", "gradients"]:
        """The direction in the words of the page."""
        return "gradients" if self.direction in ("gradients", "backward") else "rows"


class Ended(_Entry):
    """Which limit ended the run, or a part of it that was resumed later."""

    line: Text


class Warned(_Entry):
    """What is doubtful about the run."""

    line: Text


class RunResult(BaseModel):
    """All that a page shows of a run."""

    model_config = ConfigDict(frozen=True)

    title: Text
    trained: tuple[Trained, ...]
    evaluated: tuple[Evaluated, ...]
    decided: tuple[Decided, ...]
    ended: tuple[Ended, ...] = ()
    warned: tuple[Warned, ...] = ()


_KINDS: dict[str, type[_Entry]] = {
    "train": Trained,
    "eval": Evaluated,
    "decision": Decided,
    "end": Ended,
    "warning": Warned,
}


def read_run_result(path: str | Path) -> RunResult:
    """Read the metrics of a run, or those in its folder; FormatError names the line that is not as it should be."""
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
    return RunResult(
        title=str(path.parent.resolve().name or path.parent),
        trained=tuple(entries["train"]),
        evaluated=tuple(entries["eval"]),
        decided=tuple(entries["decision"]),
        ended=tuple(entries["end"]),
        warned=tuple(entries["warning"]),
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
