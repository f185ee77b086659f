"""The runs of the demonstration: what is trained, and what travels."""

from __future__ import annotations

from laconic.adapt.settings import ExchangeSettings
from laconic.data import SyntheticSettings
from laconic.train.settings import DenseSettings, EmbeddingSettings, ModelSettings, RunSettings, TrainSettings

__all__ = [
    "BATCH",
    "CURVE_EVERY",
    "METHODS",
    "SEEDS",
    "STEPS",
    "WARMUP",
    "run_settings",
    "what_laconic_sends",
]

METHODS = ("plain", "laconic")
BATCH, STEPS, SEEDS = 1024, 100, 3
CURVE_EVERY = 25
WARMUP = 40
"""Steps over which learning rates rise: without them first steps decide where a run ends, and any perturbation at all may
change that."""
_ROW_BOUND, _GRADIENT_BOUND = 0.005, 0.1
"""Narrower than the defaults: nine pairs of runs show no loss, and send a fifth more."""


def run_settings(method: str, hosts: int, seed: int) -> RunSettings:
    """Return the settings of one run; plain ones keep whole tables and send pooled vectors, as the DLRM paper does."""
    plain = method == "plain"
    data = SyntheticSettings(
        kind="synthetic", cap=100_000, samples=STEPS * BATCH * hosts, eval_samples=20_000
    )
    bounded = ExchangeSettings(bound=_ROW_BOUND, gradient_bound=_GRADIENT_BOUND)
    return RunSettings(
        data=data,
        model=ModelSettings(dim=32, bottom=(256, 128), top=(256, 128)),
        embeddings=EmbeddingSettings(sharding="table", send="pooled") if plain else EmbeddingSettings(),
        dense=DenseSettings(send="exact" if plain else "levels"),
        exchange=ExchangeSettings(kind="exact", coded_ids=False) if plain else bounded,
        train=TrainSettings(batch=BATCH, seed=seed, rate_warmup=WARMUP),
    )


def what_laconic_sends() -> str:
    """Say in words which bounds are used."""
    return (
        f"rows within {_ROW_BOUND:g} of the range of their block, gradients of rows within {_GRADIENT_BOUND:g} of its "
        "root mean square, gradients of layers within a ninth of each entry"
    )
