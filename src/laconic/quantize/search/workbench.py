"""A trained model, ready to be quantized: held-out samples in two halves, calibration."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

import torch

from laconic.data import Samples, Source, open_source
from laconic.quantize.formats.observe import Observed, observe
from laconic.quantize.formats.trained_model import TrainedModel
from laconic.quantize.search.held_out import HeldOut, divide, thinned
from laconic.train.load_trained import load_trained, run_settings

__all__ = ["Tell", "Workbench", "make_workbench", "open_workbench"]

Tell = Callable[[str, int, int], None]
"""Told what is being done, and how much of how much of it."""

_CALIBRATION = 8192


@dataclass(frozen=True, slots=True)
class Workbench:
    """All that a search begins with."""

    trained: TrainedModel
    halves: HeldOut
    observed: dict[str, Observed]
    """Inputs of every layer on samples of the search half."""
    digest: str
    """Of the model and of the samples."""


def open_workbench(run: Path, *, most: int, seed: int, tell: Tell) -> Workbench:
    """Load the newest checkpoint of a run and up to ``most`` of its evaluation samples."""
    settings = run_settings(run)
    tell("loading the model", 0, 1)
    trained = load_trained(run, settings)
    tell("loading the model", 1, 1)
    return make_workbench(trained, open_source(settings.data), most=most, seed=seed, tell=tell)


def make_workbench(
    trained: TrainedModel,
    source: Source,
    *,
    most: int,
    seed: int,
    tell: Tell,
    left: Callable[[Samples], None] | None = None,
) -> Workbench:
    """Put a model beside up to ``most`` of the evaluation samples of the source that it was trained on.

    ``left`` is called with the others, batch by batch.
    """
    total, read = source.samples_in("eval"), 0

    def done(samples: int) -> None:
        nonlocal read
        read += samples
        tell("reading samples", read, total)

    halves = divide(source, most=most, seed=seed, done=done, left=left)
    some = thinned(halves.search, _CALIBRATION)
    observed = observe(trained, [(samples.dense_BF, samples.lookups) for samples in some])
    return Workbench(trained, halves, observed, _digest(trained, halves))


def _digest(trained: TrainedModel, halves: HeldOut) -> str:
    """Change with any weight, row or sample that counts; tables by their sums, which a new snapshot changes."""
    digest = blake2b(trained.shape.model_dump_json().encode(), digest_size=16)
    for name, values in sorted({**trained.tables, **trained.state}.items()):
        digest.update(name.encode())
        digest.update(values.sum(dim=0, dtype=torch.float64).numpy().tobytes())
    for samples in halves.search:
        for tensor in (samples.label_B, samples.dense_BF, samples.lookups.ids_L):
            digest.update(torch.as_tensor(tensor).contiguous().numpy().tobytes())
    return digest.hexdigest()
