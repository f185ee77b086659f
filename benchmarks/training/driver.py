"""Ranks that train: one after the other of the methods, or several in turns."""

from __future__ import annotations

from benchmarks.crew import Crew
from benchmarks.training.jobs import Epoch, Steps
from laconic.demo.measure import RunFigures

__all__ = ["Driver"]


class Driver(Crew):
    """Some ranks, ready for jobs; a context manager."""

    def __init__(self, ranks: int, *, lab: bool, rate: str | None = None) -> None:
        super().__init__("benchmarks.training.worker", ranks, lab=lab, rate=rate)

    def time_steps(self, job: Steps) -> dict[str, RunFigures]:
        """Time steps of several methods, in turns."""
        return {answer.method: answer for answer in map(RunFigures.model_validate, self.ask("steps", job))}

    def train_epoch(self, job: Epoch) -> RunFigures:
        """Train one method once through its data."""
        return RunFigures.model_validate(self.ask("epoch", job)[0])
