"""What a run asks for and should not have, and whether its tables fit into memory.

Refused before anything is allocated, or said where the user looks.
"""

from __future__ import annotations

import socket
from pathlib import Path

from laconic.adapt.policy import check_gradient_bound
from laconic.data import Source
from laconic.errors import ConfigError, PlanError
from laconic.exchange.tables.layout import Layout
from laconic.machine import free_memory_bytes
from laconic.numerals import bytes_text
from laconic.train.placement import Placement
from laconic.train.ranks import Ranks
from laconic.train.settings import DenseSettings, RunSettings

__all__ = ["check_memory", "check_run", "warnings_of"]


_NO_SAMPLES = "raise data.eval_samples, or fraction in [split] of the columns file"
_WHY = {
    "large": "sums that waited make its steps shorter",
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
    if settings.dense.send in _WHY:
        check_gradient_bound("dense.bound", settings.dense.bound, usual=DenseSettings().bound)


def warnings_of(settings: RunSettings, source: Source) -> list[str]:
    """Return what the user should know before the run starts, a line each."""
    found = []
    dense = settings.dense
    if dense.send in _WHY and dense.optimizer != "sgd":
        found.append(
            f"dense.send: {dense.send!r} is meant for dense.optimizer 'sgd', got {dense.optimizer!r}: "
            f"{_WHY[dense.send]}, and the model gets worse; 'levels' suits any optimizer"
        )
    if not source.samples_in("eval"):
        found.append(f"data: there are no evaluation samples, so the model is not evaluated; {_NO_SAMPLES}")
    return found


def check_memory(settings: RunSettings, placement: Placement, ranks: Ranks) -> None:
    """Raise ``PlanError`` on all ranks where the tables of one machine's ranks need more than it has free."""
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
    """Name that ranks share if they share memory: containers of one machine have limits and names of their own."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        boot = ""
    return f"{socket.gethostname()} {boot}"
