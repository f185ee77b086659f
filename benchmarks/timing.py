"""Best times of several codecs on one input, so that what disturbs one disturbs all.

In every round each trial has its turn, encode then decode, and rounds start with another trial
each time. A turn lasts for as many calls as it takes to fill its time. The best time counts:
noise only ever adds. One thread, no garbage collection.

Several calls, because on a virtual machine the first to touch memory that the host took back
while a slow neighbor ran pays for it: 525 ms instead of 33 ms of system time for one temporary
of 256 MB, with the same number of page faults. A turn must outlast such a call.

Time is wall time. Calls above ten milliseconds are sure to be interrupted on a busy machine, so
for them it is the CPU time of the whole process, if that is less. Not for short ones: once in
some 100,000 calls the CPU clock stands still, and a best of thousands would pick that one.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from time import perf_counter_ns, process_time_ns
from typing import Any

import torch

_LONG_NS = 10_000_000


@dataclass(frozen=True, slots=True)
class Trial:
    """One codec on one input, ready to run; whatever a user would set up once is set up.

    ``encode`` hands its payload, whatever that is, to ``decode`` and ``size``.
    """

    encode: Callable[[], Any]
    decode: Callable[[Any], Any]
    size: Callable[[Any], int] = len


@dataclass(frozen=True, slots=True)
class BestTimes:
    """Best of all calls."""

    encode_s: float
    decode_s: float


def best_times(
    trials: Sequence[Trial], rounds: int, turn_s: float, tick: Callable[[int], None]
) -> list[BestTimes]:
    """Time all trials, interleaved; ``tick(i)`` after each turn of trial ``i``."""
    best_ns = [(1 << 62, 1 << 62)] * len(trials)
    with _undisturbed():
        for round_ in range(rounds):
            for turn in range(len(trials)):
                i = (turn + round_) % len(trials)
                best_ns[i] = _take_turn(trials[i], int(turn_s * 1e9), best_ns[i])
                tick(i)
    return [BestTimes(encode / 1e9, decode / 1e9) for encode, decode in best_ns]


def _take_turn(trial: Trial, turn_ns: int, best_ns: tuple[int, int]) -> tuple[int, int]:
    spent_ns = 0
    while True:
        times = _time_once(trial)
        best_ns = (min(best_ns[0], times[0]), min(best_ns[1], times[1]))
        spent_ns += sum(times)
        if spent_ns >= turn_ns:
            return best_ns


def _time_once(trial: Trial) -> tuple[int, int]:
    encode_ns, payload = _timed(trial.encode)
    decode_ns, _ = _timed(lambda: trial.decode(payload))
    return encode_ns, decode_ns


def _timed(call: Callable[[], Any]) -> tuple[int, Any]:
    cpu = process_time_ns()
    wall = perf_counter_ns()
    result = call()
    wall = perf_counter_ns() - wall
    cpu = process_time_ns() - cpu
    return max(1, min(wall, cpu) if wall > _LONG_NS else wall), result


@contextmanager
def _undisturbed() -> Iterator[None]:
    threads, collecting = torch.get_num_threads(), gc.isenabled()
    torch.set_num_threads(1)
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        torch.set_num_threads(threads)
        if collecting:
            gc.enable()
