"""How much is measured: sizes, repeats, models."""

from __future__ import annotations

from pathlib import Path

from benchmarks.reduction.methods import METHODS
from benchmarks.reduction.models import AnyTask, Dlrm, Encoder, Lstm, Mlp, Ncf
from benchmarks.reduction.models.ncf import BOOK_CROSSING
from laconic.config import Settings
from laconic.errors import ConfigError

__all__ = ["Plan", "usual_plan"]


class Plan(Settings):
    """All that the benchmark does, as a value."""

    methods: tuple[str, ...] = tuple(METHODS)
    words: int = 1 << 24
    sparsities: tuple[float, ...] = (0.9, 0.95, 0.99)
    repeats: int = 5
    recorded: tuple[AnyTask, ...]
    """Models whose gradients are recorded and summed."""
    many_hosts: int = 4
    """For bytes and correctness: cores need not suffice for as many."""
    many_repeats: int = 1
    sparse_model: AnyTask
    """Trained under DDP on the links of the lab."""
    dense_model: AnyTask
    """Trained under DDP on loopback, where compressing does not pay."""
    rounds: int = 8
    steps: int = 3
    """Of each round on the links; on loopback there are more of both."""


def usual_plan(data: Path | None, *, full: bool, words: int = 1 << 24) -> Plan:
    """Return what ``python -m benchmarks reduce`` measures; ``full`` is what is published."""
    if data is not None and not (data / BOOK_CROSSING).exists():
        raise ConfigError(f"--data: no {BOOK_CROSSING} in {str(data)!r}; leave it out for generated ids")
    ncf = Ncf(data=None if data is None else data.resolve())
    return Plan(
        words=words,
        repeats=15 if full else 5,
        recorded=(Dlrm(), ncf, Lstm(), Encoder()),
        many_repeats=3 if full else 1,
        sparse_model=ncf,
        dense_model=Mlp(),
        rounds=16 if full else 8,
    )
