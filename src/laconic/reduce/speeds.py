"""How fast this machine compacts and adds, from a tenth of a second of work."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter

import numpy as np

from laconic import kernels
from laconic.reduce.choice import Speeds

__all__ = ["measure_speeds"]

_WORDS = 1 << 20
_REPEATS = 5


def measure_speeds() -> Speeds:
    """Time kernels on a tensor of 4 MB: empty, one in twenty, and dense."""
    active = kernels.active()
    empty, some = np.zeros(_WORDS, np.float32), np.zeros(_WORDS, np.float32)
    some[::20] = 1
    index = np.empty(active.sparse_index_room(_WORDS, 1), np.uint8)
    values, sizes = np.empty(_WORDS, np.float32), np.empty((1, 2), np.int64)
    bounds = np.array([0, _WORDS])

    def compact(x: np.ndarray[tuple[int], np.dtype[np.float32]]) -> None:
        active.compact(x, bounds, 1, index, values, sizes)

    read_s = _best(lambda: compact(empty))
    compact_s = _best(lambda: compact(some))
    index_ends, value_ends = np.array([0, sizes[0, 0]]), np.array([0, sizes[0, 1]])
    own_index, own_values = index[: sizes[0, 0]], values[: sizes[0, 1]]
    place_s = _best(lambda: active.place_sum(own_index, index_ends, own_values, value_ends, 1, some))
    add_s = _best(lambda: np.add(empty, some, out=empty))
    moved = 2 * int(sizes[0, 1])
    return Speeds(_WORDS / read_s, moved / max(compact_s - read_s + place_s, 1e-6), _WORDS / add_s)


def _best(call: Callable[[], object]) -> float:
    times = []
    for _ in range(_REPEATS):
        start = perf_counter()
        call()
        times.append(perf_counter() - start)
    return max(min(times), 1e-6)
