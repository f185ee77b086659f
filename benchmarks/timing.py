"""Interleaved timing in one process: everybody takes turns, so that what disturbs one disturbs all.

``best_times`` is for calls of microseconds to seconds. Their best counts, because noise only ever
adds. In every round each trial has its turn, encode then decode, and rounds start with another
trial each time. A turn lasts for as many calls as it takes to fill its time. One thread, no garbage
collection.

Several calls, because on a virtual machine the first to touch memory that the host took back
while a slow neighbor ran pays for it: 525 ms instead of 33 ms of system time for one temporary
of 256 MB, with the same number of page faults. A turn must outlast such a call.

Time is wall time. Calls above ten milliseconds are sure to be interrupted on a busy machine, so
for them it is the CPU time of the whole process, if that is less. Not for short ones: once in
some 100,000 calls the CPU clock stands still, and a best of thousands would pick that one.

``time_calls`` is for calls whose medians and quantiles count, on one core.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from time import perf_counter, perf_counter_ns, process_time, process_time_ns
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from laconic.demo.measure import rotated

Times = NDArray[np.float64]
_LONG_NS = 10_000_000
_FEW = 5  # calls: fewer of them make no median


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
    with one_thread(), _no_collection():
        for i in rotated(range(len(trials)), rounds):
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
def _no_collection() -> Iterator[None]:
    collecting = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


@contextmanager
def one_core() -> Iterator[None]:
    """Keep this process on a single core, with one thread in torch."""
    cores = os.sched_getaffinity(0)
    with one_thread():
        os.sched_setaffinity(0, {max(cores)})
        try:
            yield
        finally:
            os.sched_setaffinity(0, cores)


@contextmanager
def one_thread() -> Iterator[None]:
    """Let torch use one thread: two that wait for each other are slow on a busy machine."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def time_calls(
    calls: Mapping[str, Callable[[int], object]], *, rounds: int, turn_s: float
) -> dict[str, Times]:
    """Return seconds of every call, by name. ``calls`` take a running number, to choose a batch."""
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in calls}
    number = dict.fromkeys(calls, 0)
    for _ in range(rounds):
        for name, call in calls.items():
            end = perf_counter() + turn_s
            first, least = True, len(taken[name]) + 1
            while perf_counter() < end or len(taken[name]) < least:
                begin, cpu = perf_counter(), process_time()
                call(number[name])
                wall = perf_counter() - begin
                number[name] += 1
                if not first:  # which finds the caches as another engine left them
                    taken[name].append((wall, process_time() - cpu))
                first = False
    return {name: _undisturbed(np.array(values)) for name, values in taken.items()}


def _undisturbed(taken_N2: Times) -> Times:
    """Return times of calls that had the core for themselves, or CPU times if few had."""
    wall_N, cpu_N = taken_N2.reshape(-1, 2).T
    ours_N = wall_N < 1.5 * cpu_N + 2e-4
    return wall_N[ours_N] if ours_N.sum() >= _FEW else cpu_N
