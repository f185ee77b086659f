"""What a worker is asked to do, and what it answers: values that travel as JSON."""

from __future__ import annotations

from pydantic import Field

from benchmarks.training.recipe import Recipe
from laconic.config import Settings
from laconic.data import DataSettings
from laconic.train.settings import DenseSettings, ModelSettings

__all__ = ["Answer", "Epoch", "Steps"]


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


class Answer(Settings):
    """Figures of one method, averaged over ranks where they differ."""

    method: str
    round_ms: tuple[tuple[float, ...], ...] = ()
    """Milliseconds of each step of each round."""
    seconds: float = 0.0
    steps: int = 0
    bytes_forward: float = 0.0
    """Sent per step and rank, as all bytes here."""
    bytes_backward: float = 0.0
    bytes_ids: float = 0.0
    bytes_dense: float = 0.0
    before_forward: float = 0.0
    """The same exchange uncompressed."""
    before_backward: float = 0.0
    before_ids: float = 0.0
    before_dense: float = 0.0
    ms_forward: float = 0.0
    """Encoding, the wire and decoding, per step; ``ms_ids`` and ``ms_backward`` likewise."""
    ms_backward: float = 0.0
    ms_ids: float = 0.0
    auc: float | None = None
    log_loss: float | None = None
    curve: tuple[dict[str, float | None], ...] = Field(default=())
    tables: tuple[dict[str, float | str | None], ...] = Field(default=())
