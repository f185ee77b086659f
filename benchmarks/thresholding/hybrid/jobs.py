"""What a worker is asked to do, and what it answers: values that travel as JSON."""

from __future__ import annotations

from pydantic import Field

from laconic.config import Settings
from laconic.data import DataSettings, SyntheticSettings
from laconic.train.settings import ModelSettings

__all__ = ["PARTS", "Answer", "Steps"]

PARTS = 2
"""Ranks that a replica is divided over; neighbors by number."""


class Steps(Settings):
    """Time some steps of every method, in turns."""

    methods: tuple[str, ...]
    data: DataSettings = SyntheticSettings(kind="synthetic", cap=100_000)
    model: ModelSettings
    batch: int = Field(ge=1)
    """Samples of a replica."""
    rounds: int = Field(ge=1)
    steps: int = Field(ge=1)
    """Of each method in each round; one more before them is not timed."""


class Answer(Settings):
    """Figures of one method."""

    method: str
    round_ms: tuple[tuple[float, ...], ...]
    """Milliseconds of each step of each round, on the rank that took longest."""
    bytes_sent: float
    """By one host in a step: the mean of all hosts' counters, the median of all rounds."""
    bytes_split: float
    """By one host in a step at splits, as the method counts them."""
    bytes_dense: float
    """The same for gradients of parameters."""
    equal: bool
    """Whether all replicas have the same weights after the last step, bit for bit."""
    loss: float
    """Of the last step, the mean of all replicas."""
