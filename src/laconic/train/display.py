"""What the leading rank shows and writes down: a live line, tables at the end, JSON lines."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.table import Table

from laconic.errors import ConfigError
from laconic.exchange import Ledger
from laconic.files import finite
from laconic.train.metrics import Evaluation

__all__ = ["Display", "MetricsFile"]

_MOST_TABLES = 12


class Display:
    """Progress bar and tables; silent where there is no console."""

    def __init__(self, console: Console | None, steps: int) -> None:
        self._console = console
        self._progress: Progress | None = None
        self._task: TaskID | None = None
        if console is not None:
            columns = (
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TextColumn("{task.fields[figures]}"),
                TimeRemainingColumn(),
            )
            self._progress = Progress(*columns, console=console, transient=True)
            self._task = self._progress.add_task("training", total=steps, figures="")
            self._progress.start()

    def step(self, step: int, figures: str) -> None:
        """Show where training is."""
        if self._progress is not None and self._task is not None:
            self._progress.update(self._task, completed=step, figures=figures, description="training")

    def evaluating(self, samples: int) -> None:
        """Show that training pauses."""
        if self._progress is not None and self._task is not None:
            self._progress.update(self._task, description=f"evaluating {samples:,}")

    def evaluated(self, step: int, evaluation: Evaluation) -> None:
        """Print one evaluation."""
        if self._console is not None:
            auc, entropy = (
                f"AUC {evaluation.auc:.4f}",
                f", normalized entropy {evaluation.normalized_entropy:.4f}",
            )
            if evaluation.one_class is not None:
                auc, entropy = f"AUC undefined: {evaluation.one_class}", ""
            self.say(
                f"step {step:,}: {auc}, log loss {evaluation.log_loss:.4f}{entropy} on {evaluation.samples:,} samples"
            )

    def say(self, line: str) -> None:
        """Print one line."""
        if self._console is not None:
            self._console.print(line, soft_wrap=True, markup=False, highlight=False)

    def close(self) -> None:
        """Stop the live line."""
        if self._progress is not None:
            self._progress.stop()

    def ledger(self, ledger: Ledger, dense_before: float, dense_sent: float, reviews: float) -> None:
        """Print what traveled, and the total; all are bytes per step."""
        if self._console is None:
            return
        table = Table(title="sent by rank 0, per step", title_justify="left")
        for name in ("direction", "uncompressed", "sent", "ratio", "encode", "wire", "decode"):
            table.add_column(name, justify="left" if name == "direction" else "right")
        for row in ledger.summary():
            times = [f"{row[f'{part}_ms']:.2f} ms" for part in ("encode", "wire", "decode")]
            table.add_row(row["direction"], *_sizes(row), *times)
        dense = {
            "bytes_before": dense_before,
            "bytes_sent": dense_sent,
            "ratio": dense_before / dense_sent if dense_sent else 1.0,
        }
        table.add_row("dense", *_sizes(dense), "", "", "", end_section=not reviews)
        if reviews:
            table.add_row("reviews", "", _bytes(reviews), "", "", "", "", end_section=True)
        total = ledger.total(dense_before=dense_before, dense_sent=dense_sent, reviews=reviews)
        table.add_row("total", *_sizes(total), "", "", "")
        self._console.print(table)
        if ledger.accounts["forward"].sent:
            self._console.print(_by_table(ledger))


def _by_table(ledger: Ledger) -> Table:
    """Return the tables that send most, all directions of each."""
    sent = np.sum([account.after_T for account in ledger.accounts.values()], axis=0)
    largest = sorted(range(len(ledger.names)), key=lambda t: (-sent[t], t))[:_MOST_TABLES]
    left_out = len(ledger.names) - len(largest)
    title = "tables, per step" + (f"; {left_out} that send less are left out" if left_out else "")
    table = Table(title=title, title_justify="left")
    table.add_column("table")
    for direction in ledger.accounts:
        table.add_column(direction, justify="right")
        table.add_column("ratio", justify="right")
    for t in largest:
        cells = []
        for account in ledger.accounts.values():
            before, after = int(account.before_T[t]), int(account.after_T[t])
            cells += [_bytes(after / max(account.steps, 1)), f"{before / after:.1f}x" if after else ""]
        table.add_row(ledger.names[t], *cells)
    return table


def _sizes(row: dict[str, Any]) -> tuple[str, str, str]:
    return _bytes(row["bytes_before"]), _bytes(row["bytes_sent"]), f"{row['ratio']:.1f}x"


def _bytes(size: float) -> str:
    for unit in ("B", "kB", "MB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.2f} GB"


class MetricsFile:
    """``metrics.jsonl``: a line per entry; a run that resumes at ``begin`` keeps those before."""

    def __init__(self, folder: Path, *, begin: int, tensorboard: bool) -> None:
        path = folder / "metrics.jsonl"
        if path.is_file():
            _drop_after(path, begin)
        self._file = path.open("a", buffering=1)
        self._events: Any = None
        if tensorboard:
            try:
                from torch.utils.tensorboard import SummaryWriter  # noqa: PLC0415 -- optional
            except ImportError as error:
                raise ConfigError(
                    "train.tensorboard: the tensorboard package is missing; pip install tensorboard, or leave it false"
                ) from error
            self._events = SummaryWriter(folder / "tensorboard")

    def write(self, kind: str, step: int, values: dict[str, Any]) -> None:
        """Write one entry; NaN and infinities become null."""
        self._file.write(json.dumps({"kind": kind, "step": step, **finite(values)}) + "\n")
        if self._events is not None:
            for name, value in values.items():
                if isinstance(value, int | float):
                    self._events.add_scalar(f"{kind}/{name}", value, step)

    def close(self) -> None:
        """Close all files."""
        self._file.close()
        if self._events is not None:
            self._events.close()


def _drop_after(path: Path, begin: int) -> None:
    """Remove what a run wrote after its last checkpoint; the last line may be incomplete."""
    lines = path.read_text().splitlines(keepends=True)
    kept = [line for line in lines if line.endswith("\n") and json.loads(line)["step"] <= begin]
    short = path.with_suffix(".partial")
    short.write_text("".join(kept))
    short.rename(path)
