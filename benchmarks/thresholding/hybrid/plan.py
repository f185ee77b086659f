"""How much is measured: models, and repeats of each."""

from __future__ import annotations

from dataclasses import dataclass, replace

from laconic.data import DataSettings, SyntheticSettings
from laconic.train.settings import ModelSettings

__all__ = ["KAGGLE", "WIDE", "Plan", "usual_plans"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """One model, and how often its step is timed."""

    name: str
    model: ModelSettings
    batch: int
    """Samples of a replica."""
    data: DataSettings = SyntheticSettings(kind="synthetic", cap=100_000)  # noqa: RUF009
    """26 tables with Criteo Terabyte's cardinalities, cut, and Zipf lookups."""
    warmup: int = 12
    """Steps before the first that counts: thresholds of gradients settle."""
    rounds: int
    steps: int


KAGGLE = Plan(
    name="DLRM of the paper",
    model=ModelSettings(dim=16, bottom=(512, 256, 64), top=(512, 256)),
    batch=1024,
    rounds=12,
    steps=4,
)
WIDE = Plan(
    name="wide DLRM",
    model=ModelSettings(dim=16, bottom=(1024, 512), top=(2048, 2048, 1024)),
    batch=2048,
    rounds=8,
    steps=2,
)


def usual_plans(*, full: bool) -> list[Plan]:
    """Return what ``python -m benchmarks hybrid`` measures; ``full`` has three times as many rounds."""
    return [replace(plan, rounds=3 * plan.rounds) if full else plan for plan in (KAGGLE, WIDE)]
