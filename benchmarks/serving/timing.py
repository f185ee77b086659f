"""Interleaved timing: everybody takes turns on one core, so that what the machine does meanwhile meets all alike."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from time import perf_counter, process_time

import numpy as np
import torch
from numpy.typing import NDArray

__all__ = ["Times", "one_core", "one_thread", "time_calls"]

Times = NDArray[np.float64]

_FEW = 5  # calls: fewer of them make no median


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
    """Let torch compute with one thread: two that wait for each other are slow where others use the machine."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def time_calls(
    calls: Mapping[str, Callable[[int], object]],
    *,
    rounds: int,
    turn_s: float,
    tell: Callable[[int, int], None],
) -> dict[str, Times]:
    """Seconds of every call, by name. ``calls`` take a running number, for a different batch each time.

    ``tell`` hears how many rounds of how many are done.
    """
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in calls}
    turn = dict.fromkeys(calls, 0)
    for done in range(rounds):
        tell(done, rounds)
        for name, call in calls.items():
            end = perf_counter() + turn_s
            first, least = True, len(taken[name]) + 1
            while perf_counter() < end or len(taken[name]) < least:
                begin, cpu = perf_counter(), process_time()
                call(turn[name])
                wall = perf_counter() - begin
                turn[name] += 1
                if not first:  # which finds the caches as another engine left them
                    taken[name].append((wall, process_time() - cpu))
                first = False
    return {name: _undisturbed(np.array(values)) for name, values in taken.items()}


def _undisturbed(taken_N2: Times) -> Times:
    """Pick the times of calls during which the core was ours; where hardly any was, the time that they computed."""
    wall_N, cpu_N = taken_N2.reshape(-1, 2).T
    ours_N = wall_N < 1.5 * cpu_N + 2e-4
    return wall_N[ours_N] if ours_N.sum() >= _FEW else cpu_N
