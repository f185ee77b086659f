"""A trained model, ready to be quantized: calibration, and held-out samples in two parts.

One part is to search with, the other is never seen by the search. Sample ``i`` of the evaluation
split is drawn by a hash of ``i``, so both parts are alike whatever the order of the file is, and
the same at every run. Shape legend: ``B`` samples.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from laconic.data import Samples, Source, open_source
from laconic.data.hashing import key64, mix64, uniform
from laconic.errors import ConfigError
from laconic.lookups import Lookups
from laconic.quantize.formats.layers import Observed, observe
from laconic.quantize.formats.trained_model import TrainedModel
from laconic.train.load_trained import load_trained, run_settings

__all__ = [
    "BATCH",
    "HeldOut",
    "Tell",
    "Workbench",
    "check_finite",
    "divide",
    "joined",
    "labels",
    "make_workbench",
    "open_workbench",
    "select",
    "thinned",
]

BATCH = 512  # scored at a time: what a model computes meanwhile stays in the cache, which takes half the time of 4096
_READ = 4096
_LEAST = 200  # samples of a part below which no figure of it means anything

Tell = Callable[[str, int, int], None]
"""Told what is being done, and how much of how much of it."""
_CALIBRATION = 8192


@dataclass(frozen=True, slots=True)
class HeldOut:
    """Both parts, in batches."""

    search: tuple[Samples, ...]
    verification: tuple[Samples, ...]


def divide(
    source: Source,
    *,
    most: int,
    seed: int = 0,
    done: Callable[[int], None] = lambda samples: None,
    left: Callable[[Samples], None] | None = None,
) -> HeldOut:
    """Draw up to about ``most`` of the evaluation samples, half for each part.

    ``done`` is called with the number of samples of every batch that was read, ``left`` with those that neither part has.
    """
    total, taken = source.samples_in("eval"), _share(source, most)
    parts: tuple[list[Samples], list[Samples]] = ([], [])
    for samples, drawn_B in _drawn(source, seed):
        for part, low in zip(parts, (0.0, taken / 2), strict=True):
            chosen = np.flatnonzero((drawn_B >= low) & (drawn_B < low + taken / 2))
            if len(chosen):
                part.append(select(samples, torch.from_numpy(chosen)))
        if left is not None:
            left(select(samples, torch.from_numpy(np.flatnonzero(drawn_B >= taken))))
        done(len(samples))
    for name, part in zip(("search", "verification"), parts, strict=True):
        _check(name, part, total)
    return HeldOut(*(thinned(tuple(part), sum(map(len, part))) for part in parts))


def _share(source: Source, most: int) -> float:
    total = source.samples_in("eval")
    return min(1.0, most / total) if total else 0.0


def _drawn(source: Source, seed: int) -> Iterator[tuple[Samples, NDArray[np.float64]]]:
    """All evaluation samples, and a number in [0, 1) for each."""
    first, key = 0, key64("quantize", seed)
    for samples in source.batches("eval", global_batch=_READ, rank=0, ranks=1):
        number_B = np.arange(first, first + len(samples), dtype=np.uint64)
        yield samples, uniform(mix64(number_B ^ key))
        first += len(samples)


def select(samples: Samples, chosen: Tensor) -> Samples:
    """Take samples by their numbers."""
    return Samples(samples.label_B[chosen], samples.dense_BF[chosen], samples.lookups.select(chosen))


def joined(parts: Sequence[Samples]) -> Samples:
    """Several batches, at least one, as one."""
    return Samples(
        labels(parts),
        torch.cat([samples.dense_BF for samples in parts]),
        Lookups.joined([samples.lookups for samples in parts]),
    )


def labels(batches: Sequence[Samples]) -> Tensor:
    """Labels of all samples, in order."""
    return torch.cat([samples.label_B for samples in batches])


def check_finite(exact_B: Tensor) -> None:
    """Raise where a model is beyond help."""
    if not bool(torch.isfinite(exact_B).all()):
        raise ConfigError(
            "quantize: the model in fp32 gives logits that are no numbers on held-out samples; it did not train"
        )


def thinned(batches: tuple[Samples, ...], most: int) -> tuple[Samples, ...]:
    """Every k-th sample, at most so many, in batches of ``BATCH`` to twice as many; the last may have fewer."""
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


def _check(name: str, part: list[Samples], total: int) -> None:
    count = sum(map(len, part))
    positive = sum(int(samples.label_B.sum()) for samples in part)
    if count < _LEAST or positive in (0, count):
        raise ConfigError(
            f"quantize: the {name} half of {total} evaluation samples has {count}, {positive} of them positive; "
            f"expected at least {_LEAST} and both labels; raise the share of evaluation samples in the run's data"
        )


@dataclass(frozen=True, slots=True)
class Workbench:
    """All that a search begins with."""

    trained: TrainedModel
    halves: HeldOut
    observed: dict[str, Observed]
    """Inputs of every layer on samples of the search half."""
    digest: str
    """Checksum of the model and of the samples."""


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
