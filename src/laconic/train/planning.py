"""What a run's settings tell a planner: tables, batch, dimensions, and the bytes of the dense part."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from laconic.data import open_source
from laconic.train.effective_exchange import effective_exchange
from laconic.train.settings import RunSettings
from laconic.train.trainer import make_model

__all__ = ["RunFacts", "run_facts"]

# per dense gradient; as many as it has, or not to be foretold, otherwise
_BITS = {"bf16": 16, "levels": 6, "lossless": 27}


@dataclass(frozen=True, slots=True)
class RunFacts:
    """Of one run."""

    rows: dict[str, int]
    """Of every table, in their order."""

    batch: int
    dim: int
    state_bytes: int
    """Optimizer state of a row."""

    dense_bytes: float
    """Dense gradients, as they travel."""

    coded_ids: bool
    """Whether ids are coded."""


def run_facts(settings: RunSettings) -> RunFacts:
    """Open the data, for its schema only, and count the model's parameters."""
    schema = open_source(settings.data).schema
    with torch.device("meta"):
        model = make_model(settings.model, schema)
    values = sum(parameter.numel() for parameter in model.parameters())
    return RunFacts(
        rows={feature.name: feature.rows for feature in schema.categorical},
        batch=settings.train.batch,
        dim=settings.model.dim,
        state_bytes=4 if settings.embeddings.optimizer == "adagrad" else 0,
        dense_bytes=values * _BITS.get(settings.dense.send, 32) / 8,
        coded_ids=effective_exchange(settings).coded_ids,
    )
