"""What a worker is asked to do, and what it answers: values that travel as JSON."""

from __future__ import annotations

from pydantic import Field

from benchmarks.reduction.models import AnyTask
from benchmarks.reduction.workload import AnyWorkload
from laconic.config import Settings

__all__ = ["Answer", "Iterations", "Sums"]


class Sums(Settings):
    """Sum a workload by every method, in turns."""

    workload: AnyWorkload
    methods: tuple[str, ...]
    repeats: int = Field(ge=1)
    """Of each method; one more before them is checked and not timed."""


class Iterations(Settings):
    """Train a model under ``DistributedDataParallel``, plain (``dense``) and with Laconic's hook, in turns."""

    task: AnyTask
    rounds: int = Field(ge=1)
    steps: int = Field(ge=1)
    """Of each in each round; one more before them is not timed."""


class Answer(Settings):
    """Figures of one method."""

    method: str
    round_ms: tuple[tuple[float, ...], ...]
    """Milliseconds of each sum or step of each round, on the rank that took longest."""
    bytes_sent: float
    """By one host for one sum or step: the mean of all hosts' counters, the median of all rounds."""
    bytes_claimed: float | None = None
    """What the method itself counts; headers and barriers are not in it."""
    exact: bool
    """In every sum, on every rank; see ``truth``."""
    way: str | None = None
    """What the method chose."""
    sparsity: float | None = None
    """Share of zeros in rank 0's gradient, where only the worker knows it."""
