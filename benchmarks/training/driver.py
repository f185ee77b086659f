"""Ranks that train: one after the other of the methods, or several in turns."""

from __future__ import annotations

from benchmarks.crew import Crew
from benchmarks.training.jobs import Answer, Epoch, Steps

__all__ = ["Driver"]


class Driver(Crew):
    """Some ranks, ready for jobs; a context manager."""

    def __init__(self, ranks: int, *, lab: bool, rate: str | None = None) -> None:
        super().__init__("benchmarks.training.worker", ranks, lab=lab, rate=rate)

    def time_steps(self, job: Steps) -> dict[str, Answer]:
        """Time steps of several methods, in turns."""
        return {answer.method: answer for answer in map(Answer.model_validate, self.ask("steps", job))}

    def train_epoch(self, job: Epoch) -> Answer:
        """Train one method once through its data."""
        return Answer.model_validate(self.ask("epoch", job)[0])
