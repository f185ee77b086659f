"""A rank's part in summing a workload: every method in turn, every sum on a fresh copy, every result checked."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field

import torch
from torch import Tensor

from benchmarks.reduction.jobs import Answer, Sums
from benchmarks.reduction.methods import METHODS, Setting, Sum, Summed
from benchmarks.reduction.truth import Truth
from benchmarks.worker import Measured, fingerprint, measure
from laconic.errors import ConfigError
from laconic.reduce import Reducer
from laconic.train.ranks import Ranks

__all__ = ["sum_by_turns"]


@dataclass(slots=True)
class _Figures:
    measured: list[Measured] = field(default_factory=list)
    claimed: list[int] = field(default_factory=list)
    exact: bool = True
    way: str | None = None


def sum_by_turns(ranks: Ranks, reducer: Reducer, job: Sums) -> list[Answer]:
    """Sum; methods are begun in another order every time."""
    unknown = [name for name in job.methods if name not in METHODS]
    if unknown:
        raise ConfigError(f"bench: no such method {unknown[0]!r} (known: {', '.join(METHODS)})")
    own = torch.from_numpy(job.workload.gradient(ranks.rank))
    truth = Truth.of(job.workload.gradient(rank) for rank in range(ranks.count))
    setting = Setting(reducer, job.workload.shapes)
    ways = {name: METHODS[name].make(setting) for name in job.methods}
    figures = {name: _Figures() for name in job.methods}
    copy = torch.empty_like(own)
    for turn in range(-1, job.repeats):
        for k in range(len(job.methods)):
            name = job.methods[(turn + k) % len(job.methods)]
            copy.copy_(own)
            _take_turn(ways[name], copy, figures[name], ranks, truth, averages=METHODS[name].averages)
            if turn < 0:  # measures links and fills caches
                figures[name].measured.clear()
    return [_answer(name, found) for name, found in figures.items()]


def _take_turn(
    way: Sum, gradient: Tensor, figures: _Figures, ranks: Ranks, truth: Truth, *, averages: bool
) -> None:
    results: list[Summed] = []
    figures.measured.append(measure(ranks, lambda: results.append(way(gradient))))
    summed = results[0]
    total = summed.total * ranks.count if averages else summed.total
    seen = ranks.gather((truth.allows(total), fingerprint(total), summed.bytes_sent))
    figures.exact &= all(allowed for allowed, _, _ in seen) and len({mark for _, mark, _ in seen}) == 1
    figures.claimed = [claimed for _, _, claimed in seen if claimed is not None]
    figures.way = summed.way


def _answer(name: str, figures: _Figures) -> Answer:
    return Answer(
        method=name,
        round_ms=tuple(measured.times_ms for measured in figures.measured),
        bytes_sent=statistics.median(measured.bytes_sent for measured in figures.measured),
        bytes_claimed=statistics.fmean(figures.claimed) if figures.claimed else None,
        exact=figures.exact,
        way=figures.way,
    )
