"""What a worker is asked to do: values that travel as JSON."""

from __future__ import annotations

from benchmarks.training.recipe import Recipe
from laconic.config import Settings
from laconic.data import DataSettings
from laconic.train.settings import DenseSettings, ModelSettings

__all__ = ["Epoch", "Steps"]


class _Job(Settings):
    data: DataSettings
    model: ModelSettings
    recipe: Recipe = Recipe()
    """How it is trained."""


class Steps(_Job):
    """Time some steps of every method, in turns."""

    methods: tuple[str, ...]
    """``alone`` is this rank's batch on this rank, with nothing sent; ``auto`` adapts its bounds and its choices."""
    batch: int
    rounds: int
    steps: int
    """Of each method in each round; one more before them is not counted."""
    settling: int = 45
    """Steps of what adapts before the clock starts: the guard's second fork is behind them, its third far ahead."""


class Epoch(_Job):
    """Train one method on a data set, once through."""

    method: str
    batch: int
    seed: int = 0
    steps: int | None = None
    evaluate: bool = True
    dense: DenseSettings | None = None
    """How the dense part is trained, where it is not as the recipe and the method say."""
    curve_every: int = 0
    """Evaluate every so many steps, for a curve; 0: only at the end."""
