"""The workbench: a trained model, its calibration, and held-out samples in two halves.

The search uses one half and never sees the other, which verifies what it found. Sample ``i`` of the
evaluation split is drawn by a hash of ``i``. So both halves are alike whatever the order of the
file is, and the same in every run. Shape legend: ``B`` samples.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from laconic.data import Samples, Source, open_source
from laconic.data.hashing import key64, mix64, uniform
from laconic.errors import ConfigError
from laconic.lookups import Lookups
from laconic.quantize.formats.layers import Observed, observe
from laconic.quantize.formats.table_rows import TableRows, pieces
from laconic.quantize.formats.trained_model import TrainedModel
from laconic.train.load_trained import load_trained, run_settings

__all__ = [
    "BATCH",
    "HeldOut",
    "Progress",
    "Workbench",
    "check_finite",
    "divide",
    "joined",
    "labels",
    "make_workbench",
    "no_progress",
    "open_workbench",
    "select",
    "thinned",
]

BATCH = 512
"""Samples that are scored at a time. What a model computes for them stays in the cache, which takes
half the time of 4096."""
_READ = 4096
_LEAST = 200  # samples of a half below which no figure of it means anything

_CALIBRATION = 8192  # samples that ranges of inputs are taken from

Progress = Callable[[str, int, int], None]
"""Called with what is being done, how much of it is done, and how much there is."""


def no_progress(what: str, done: int, total: int) -> None:
    """Report progress to nobody."""


@dataclass(frozen=True, slots=True)
class HeldOut:
    """Both halves, in batches."""

    search: tuple[Samples, ...]
    verification: tuple[Samples, ...]


def divide(
    source: Source,
    *,
    most: int,
    seed: int = 0,
    progress: Progress = no_progress,
    left: Callable[[Samples], None] | None = None,
) -> HeldOut:
    """Draw up to about ``most`` of the evaluation samples, and put half of them into each half.

    ``left`` is called with the samples that neither half has, batch by batch.
    """
    total = source.samples_in("eval")
    taken = min(1.0, most / total) if total else 0.0
    halves: tuple[list[Samples], list[Samples]] = ([], [])
    read, key = 0, key64("quantize", seed)
    for samples in source.batches("eval", global_batch=_READ, rank=0, ranks=1):
        number_B = np.arange(read, read + len(samples), dtype=np.uint64)
        drawn_B = uniform(mix64(number_B ^ key))  # in [0, 1)
        for half, low in zip(halves, (0.0, taken / 2), strict=True):
            chosen = np.flatnonzero((drawn_B >= low) & (drawn_B < low + taken / 2))
            if len(chosen):
                half.append(select(samples, torch.from_numpy(chosen)))
        if left is not None:
            left(select(samples, torch.from_numpy(np.flatnonzero(drawn_B >= taken))))
        read += len(samples)
        progress("reading samples", read, total)
    for name, half in zip(("search", "verification"), halves, strict=True):
        _check(name, half, total)
    return HeldOut(*(thinned(tuple(half), sum(map(len, half))) for half in halves))


def select(samples: Samples, chosen: Tensor) -> Samples:
    """Return some samples, by their numbers."""
    return Samples(samples.label_B[chosen], samples.dense_BF[chosen], samples.lookups.select(chosen))


def joined(batches: Sequence[Samples]) -> Samples:
    """Make one batch of several, at least one."""
    return Samples(
        labels(batches),
        torch.cat([samples.dense_BF for samples in batches]),
        Lookups.joined([samples.lookups for samples in batches]),
    )


def labels(batches: Sequence[Samples]) -> Tensor:
    """Return the labels of all samples, in order."""
    return torch.cat([samples.label_B for samples in batches])


def check_finite(exact_B: Tensor) -> None:
    """Raise ``ConfigError`` where logits of the model in fp32 are not finite."""
    if not bool(torch.isfinite(exact_B).all()):
        raise ConfigError(
            "quantize: the model in fp32 gives logits that are no numbers on held-out samples; it did not train"
        )


def thinned(batches: tuple[Samples, ...], most: int) -> tuple[Samples, ...]:
    """Return every k-th sample, ``most`` at most.

    Batches have ``BATCH`` samples to twice as many; the last may have fewer.
    """
    every = -(-sum(map(len, batches)) // most)
    kept: list[Samples] = []
    ready, first = [], 0
    for samples in batches:
        numbers = torch.arange(-first % every, len(samples), every)
        for begin in range(0, len(numbers), BATCH):
            kept.append(select(samples, numbers[begin : begin + BATCH]))
            if sum(map(len, kept)) >= BATCH:
                ready.append(joined(kept))
                kept = []
        first += len(samples)
    return (*ready, *([joined(kept)] if kept else []))


def _check(name: str, half: list[Samples], total: int) -> None:
    count = sum(map(len, half))
    positive = sum(int(samples.label_B.sum()) for samples in half)
    if count < _LEAST or positive in (0, count):
        raise ConfigError(
            f"quantize: the {name} half of {total} evaluation samples has {count}, {positive} of them positive; "
            f"expected at least {_LEAST} and both labels; raise the share of evaluation samples in the run's data"
        )


@dataclass(frozen=True, slots=True)
class Workbench:
    """Everything that a search begins with."""

    trained: TrainedModel
    halves: HeldOut
    observed: dict[str, Observed]
    """Observed inputs of every layer, on samples of the search half."""
    digest: str
    """Checksum of the model and of the samples."""


def open_workbench(run: Path, *, most: int, seed: int, progress: Progress) -> Workbench:
    """Load the newest checkpoint of a run and up to ``most`` of its evaluation samples."""
    settings = run_settings(run)
    progress("loading the model", 0, 1)
    trained = load_trained(run, settings)
    progress("loading the model", 1, 1)
    return make_workbench(trained, open_source(settings.data), most=most, seed=seed, progress=progress)


def make_workbench(
    trained: TrainedModel,
    source: Source,
    *,
    most: int,
    seed: int,
    progress: Progress,
    left: Callable[[Samples], None] | None = None,
) -> Workbench:
    """Draw up to ``most`` evaluation samples of the source that a model was trained on.

    ``left`` is called with the others, batch by batch.
    """
    halves = divide(source, most=most, seed=seed, progress=progress, left=left)
    some = thinned(halves.search, _CALIBRATION)
    observed = observe(trained, [(samples.dense_BF, samples.lookups) for samples in some])
    return Workbench(trained, halves, observed, _digest(trained, halves))


def _digest(trained: TrainedModel, halves: HeldOut) -> str:
    """Make a checksum that changes with any weight, row or sample of the search half.

    Of a table it has the sums of its columns, which a new snapshot changes.
    """
    digest = blake2b(trained.shape.model_dump_json().encode(), digest_size=16)
    sums = {name: _column_sums(table) for name, table in trained.tables.items()}
    sums |= {name: values.sum(dim=0, dtype=torch.float64) for name, values in trained.state.items()}
    for name, values in sorted(sums.items()):
        digest.update(name.encode())
        digest.update(values.numpy().tobytes())
    for samples in halves.search:
        for tensor in (samples.label_B, samples.dense_BF, samples.lookups.ids_L):
            digest.update(torch.as_tensor(tensor).contiguous().numpy().tobytes())
    return digest.hexdigest()


def _column_sums(table: TableRows) -> Tensor:
    sums_D = torch.zeros(table.shape[1], dtype=torch.float64)
    for _, rows_RD in pieces(table):
        sums_D += rows_RD.sum(dim=0, dtype=torch.float64)
    return sums_D
