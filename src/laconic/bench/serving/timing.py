"""Interleaved timing: everybody takes turns on one core, so that what the machine does meanwhile meets all alike."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from time import perf_counter, process_time

import numpy as np
import torch

__all__ = ["one_core", "time_calls"]


@contextmanager
def one_core() -> Iterator[None]:
    """Keep this process on a single core, with one thread in torch."""
    cores, threads = os.sched_getaffinity(0), torch.get_num_threads()
    torch.set_num_threads(1)
    os.sched_setaffinity(0, {max(cores)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, cores)
        torch.set_num_threads(threads)


def time_calls(
    calls: Mapping[str, Callable[[int], object]], *, rounds: int, turn_s: float
) -> dict[str, np.ndarray[tuple[int], np.dtype[np.float64]]]:
    """Seconds of every call, by name. ``calls`` take a running number, for a different batch each time."""
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    turn = dict.fromkeys(calls, 0)
    for _ in range(rounds):
        for name, call in calls.items():
            end = perf_counter() + turn_s
            first = True
            while perf_counter() < end or first:
                begin, cpu = perf_counter(), process_time()
                call(turn[name])
                wall = perf_counter() - begin
                turn[name] += 1
                # a call during which the core was somebody else's says nothing about the engine
                if not first and wall < 1.5 * (process_time() - cpu) + 2e-4:
                    seconds[name].append(wall)
                first = False
    return {name: np.array(values) for name, values in seconds.items()}
