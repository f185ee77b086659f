"""What a run may not ask for, whether its tables fit into memory, and what ends it.

That is refused before anything is allocated, or said where the user looks. A run ends by
``train.steps`` or ``train.epochs``, or after one pass over the data where neither is given.
"""

from __future__ import annotations

import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from laconic.data import Source
from laconic.errors import ConfigError, PlanError
from laconic.exchange.tables.layout import Layout
from laconic.machine import free_memory_bytes
from laconic.numerals import bytes_text
from laconic.train.checkpoint import Position
from laconic.train.placement import Placement
from laconic.train.ranks import Ranks
from laconic.train.settings import RunSettings, TrainSettings

__all__ = ["RunLimits", "check_memory", "check_run", "warnings_of"]

_NO_SAMPLES = "raise data.eval_samples, or fraction in [split] of the columns file"
_WHY = {
    "bounded": "noise of one size for a whole layer is large beside its small entries",
}


def check_run(settings: RunSettings, source: Source) -> None:
    """Raise ``ConfigError`` for what cannot be meant."""
    if not source.samples_in("train"):
        raise ConfigError("data: expected training samples, got none")
    if settings.train.eval_every and not source.samples_in("eval"):
        raise ConfigError(
            f"train.eval_every: {settings.train.eval_every} asks for evaluations, but there are no evaluation samples; "
            f"{_NO_SAMPLES}"
        )


def warnings_of(settings: RunSettings, source: Source) -> list[str]:
    """Return what the user should know before the run starts, a line each."""
    found = []
    optimizer, method = settings.dense.optimizer, settings.compression.effective().dense.method
    if method in _WHY and optimizer != "sgd":
        found.append(
            f"compression.dense: {method!r} is meant for dense.optimizer 'sgd', got {optimizer!r}: "
            f"{_WHY[method]}, and the model gets worse; 'levels' suits any optimizer"
        )
    if not source.samples_in("eval"):
        found.append(f"data: there are no evaluation samples, so the model is not evaluated; {_NO_SAMPLES}")
    return found


def check_memory(settings: RunSettings, placement: Placement, ranks: Ranks) -> None:
    """Raise ``PlanError`` on all ranks if tables of one machine need more memory than is free."""
    row_bytes = 4 * settings.model.dim + (4 if settings.embeddings.optimizer == "adagrad" else 0)
    layout = Layout(placement.tables, ranks.count, ranks.rank)
    kept = zip(placement.tables, layout.shard_rows(ranks.rank).tolist(), strict=True)
    rows = {table.name: 0 if table.cold else count for table, count in kept}
    for copies in (placement.hot, placement.warm):
        for name, ids in copies.items():
            rows[name] += len(ids)
    needed, free = row_bytes * sum(rows.values()), free_memory_bytes()
    everyone = ranks.gather((_machine(), needed, free))
    for machine, _, _ in everyone:
        here = [(need, room) for name, need, room in everyone if name == machine]
        known = [room for _, room in here if room is not None]
        total = sum(need for need, _ in here)
        if known and total > min(known):
            largest = max(placement.tables, key=lambda table: rows[table.name])
            raise PlanError(
                f"embeddings: table {largest.name!r} has {largest.rows:,} rows and needs "
                f"{bytes_text(row_bytes * largest.rows)}; all tables of this machine's ranks need {bytes_text(total)}, "
                f"and {bytes_text(min(known))} are free; {_smaller(settings)}, lower model.dim, start more machines, "
                "or let laconic plan keep tables in files"
            )


def _smaller(settings: RunSettings) -> str:
    if settings.data.kind == "synthetic":
        return "lower data.rows or data.cap"
    return "hash its ids (buckets = 1000000 for its column in the columns file), make them dense with laconic prepare"


def _machine() -> str:
    """Return a name that ranks share if they share memory.

    Containers of one machine have limits and names of their own.
    """
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        boot = ""
    return f"{socket.gethostname()} {boot}"


@dataclass(frozen=True, slots=True)
class RunLimits:
    """The steps that a run takes, and which of its settings says so."""

    settings: TrainSettings
    epochs: int | None
    """Passes over the data; None: as many as ``train.steps`` needs."""
    last: int
    """Step after which the run ends."""

    @classmethod
    def of(cls, settings: TrainSettings, begin: Position, samples: int, global_batch: int) -> RunLimits:
        """Count the steps to the first limit, from ``begin`` on."""
        epochs = settings.epochs
        if epochs is None:
            if settings.steps is not None:
                return cls(settings, None, max(settings.steps, begin.step))
            epochs = 1
        per_epoch = -(-samples // global_batch)
        behind = begin.sample // global_batch if begin.sample < samples else per_epoch
        total = begin.step + max(per_epoch * (epochs - begin.epoch) - behind, 0)
        return cls(settings, epochs, max(min(total, settings.steps or total), begin.step))

    @property
    def ended_by(self) -> Literal["steps", "epochs"]:
        """The setting that ends the run."""
        steps = self.settings.steps
        return "steps" if steps is not None and self.last >= steps else "epochs"

    def warning(self) -> str | None:
        """Say before the run that it will not take the steps that its settings ask for."""
        steps = self.settings.steps
        if steps is None or self.ended_by == "steps":
            return None
        return (
            f"train.steps: {steps:,} will not be reached, train.epochs = {self.epochs} ends after step {self.last:,}; "
            "leave train.epochs out to repeat the data"
        )

    def line(self, begin: Position, end: Position) -> str:
        """Say after the run what ended it."""
        done = f"ended after {end.step:,} steps"
        if end == begin:
            done = f"nothing to train: the checkpoint is of step {end.step:,}"
        if self.ended_by == "steps":
            return f"{done}, as train.steps says, in epoch {end.epoch + 1} of the data"
        if self.settings.epochs is None:
            return f"{done}, at the end of the data"
        line = f"{done}, at the end of epoch {end.epoch + 1}, as train.epochs says"
        if self.settings.steps is not None:
            line += f"; train.steps = {self.settings.steps:,} was not reached"
        return line
