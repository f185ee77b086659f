"""The held-out samples, in two parts: one to search with, and one that the search never sees.

Sample ``i`` of the evaluation split is drawn by a hash of ``i``, so both parts are alike whatever the order
of the file is, and the same at every run. Shape legend: ``T`` tables, ``B`` samples, ``L`` ids in all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from laconic.data import Samples, Source
from laconic.data.hashing import key64, mix64, uniform
from laconic.errors import ConfigError
from laconic.lookups import Lookups

__all__ = ["BATCH", "HeldOut", "divide", "joined", "labels", "select", "thinned"]

BATCH = 512  # scored at a time: what a model computes meanwhile stays in the cache, which takes half the time of 4096
_READ = 4096
_LEAST = 200  # samples of a part below which no figure of it means anything


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
    lookups, count = samples.lookups, len(samples)
    bags = (torch.arange(lookups.tables).unsqueeze(1) * count + chosen).flatten()
    begins, ends = lookups.offsets[bags], lookups.offsets[bags + 1]
    offsets = torch.nn.functional.pad((ends - begins).cumsum(0), (1, 0))
    place_L = torch.arange(int(offsets[-1]))
    place_L += torch.repeat_interleave(begins - offsets[:-1], ends - begins)
    return Samples(
        samples.label_B[chosen],
        samples.dense_BF[chosen],
        Lookups(lookups.ids_L[place_L], offsets, lookups.tables),
    )


def labels(batches: tuple[Samples, ...]) -> Tensor:
    """Labels of all samples, in order."""
    return torch.cat([samples.label_B for samples in batches])


def joined(parts: list[Samples]) -> Samples:
    """Several batches, at least one, as one."""
    tables = parts[0].lookups.tables
    ids, sizes = [], []
    for t in range(tables):
        for lookups in (samples.lookups for samples in parts):
            offsets = lookups.offsets[t * lookups.samples : (t + 1) * lookups.samples + 1]
            ids.append(lookups.ids_L[int(offsets[0]) : int(offsets[-1])])
            sizes.append(offsets.diff())
    offsets = torch.nn.functional.pad(torch.cat(sizes).cumsum(0), (1, 0))
    return Samples(
        torch.cat([samples.label_B for samples in parts]),
        torch.cat([samples.dense_BF for samples in parts]),
        Lookups(torch.cat(ids), offsets, tables),
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
