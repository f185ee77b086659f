"""One measurement on all ranks: time of the slowest, bytes of all, and whether results agree."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter

from benchmarks.reduction.counter import bytes_sent, shared_counter
from laconic.train.ranks import Ranks

__all__ = ["Measured", "measure"]


@dataclass(frozen=True, slots=True)
class Measured:
    """What all ranks found together."""

    times_ms: tuple[float, ...]
    """Of every call; of each, the slowest rank's."""
    bytes_sent: float
    """Per call and host; two barriers of some hundred bytes are in it."""


def measure(ranks: Ranks, call: Callable[[], object], calls: int = 1, *, skip: int = 0) -> Measured:
    """Call a function some times on all ranks at once; the first ``skip`` times are not in the figures.

    After the barrier at the end all that was sent has arrived, so that the counter has seen it.
    """
    for _ in range(skip):
        call()
    ranks.barrier()
    before = bytes_sent()
    ranks.barrier()
    times = []
    for _ in range(calls):
        start = perf_counter()
        call()
        times.append(1e3 * (perf_counter() - start))
    ranks.barrier()
    everyone = ranks.gather((times, bytes_sent() - before))
    sent = [seen / calls / (ranks.count if shared_counter() else 1) for _, seen in everyone]
    slowest = tuple(max(each) for each in zip(*(times for times, _ in everyone), strict=True))
    return Measured(slowest, statistics.fmean(sent))
