"""What a run's settings ask for and should not have: refused before it starts, or said where the user looks."""

from __future__ import annotations

from laconic.data import Source
from laconic.errors import ConfigError
from laconic.train.policy import check_gradient_bound
from laconic.train.settings import DenseSettings, RunSettings

__all__ = ["check_run", "warnings_of"]

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
