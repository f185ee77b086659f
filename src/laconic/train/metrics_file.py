"""What a run writes down: JSON lines, and TensorBoard events if asked."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from laconic.errors import ConfigError
from laconic.files import finite

__all__ = ["MetricsFile"]


class MetricsFile:
    """``metrics.jsonl``: one line per entry; a run resumed after step ``begin`` keeps those up to it."""

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
    """Remove what a run wrote between its last checkpoint and its end; the last line may be half of one."""
    lines = path.read_text().splitlines(keepends=True)
    kept = [line for line in lines if line.endswith("\n") and json.loads(line)["step"] <= begin]
    short = path.with_suffix(".partial")
    short.write_text("".join(kept))
    short.rename(path)
