"""What ends a run: ``train.steps``, ``train.epochs``, or one pass over the data where neither is given."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from laconic.train.checkpoint import Position
from laconic.train.settings import TrainSettings

__all__ = ["Limits"]


@dataclass(frozen=True, slots=True)
class Limits:
    """The steps that a run takes, and which of its settings says so."""

    settings: TrainSettings
    epochs: int | None
    """Passes over the data; None: as many as ``train.steps`` needs."""
    last: int
    """Step after which the run ends."""

    @classmethod
    def of(cls, settings: TrainSettings, begin: Position, samples: int, global_batch: int) -> Limits:
        """Count the steps until the first limit; those behind ``begin`` may have been of another number of ranks."""
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
