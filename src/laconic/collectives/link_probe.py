"""How fast the link is: a few messages of two sizes between all ranks, over a wire that exists.

::

    latency = time of the small one            bandwidth = bytes / time of the rest of the large one

64 kB tell the speed of slow links within milliseconds. Where all ranks found them too quick to be timed well,
1 MB follow. Minimum of several: noise only ever adds. The first of every size does not count: it warms
buffers up, and takes what a rate-limited link has saved for a burst, so that those after it travel at the
rate that lasts.
"""

from __future__ import annotations

from time import perf_counter

import numpy as np

from laconic.collectives.wire import Wire
from laconic.cost import Link

__all__ = ["probe_link"]

_SMALL, _MIDDLE, _LARGE = 1 << 10, 1 << 16, 1 << 20
_REPEATS_OF_SMALL, _REPEATS = 32, 5  # a busy core delays many short messages in a row
_CLEAR_S = 2e-3  # a transfer that takes as long is well above the jitter of a message
_LEAST_LATENCY_S = 1e-6
_MOST_BYTES_PER_S = 1e11  # above any memory; a loopback may look infinitely fast


def probe_link(wire: Wire) -> Link:
    """Measure the link of this rank; all ranks call it together, each in the thread that owns the wire.

    The bandwidth is that of bytes to all others together. Each rank returns what it measured itself.
    """
    peers = wire.ranks - 1
    if peers == 0:
        return Link(_LEAST_LATENCY_S, _MOST_BYTES_PER_S)
    small_s = _message_s(wire, _SMALL, _REPEATS_OF_SMALL)
    size, large_s = _MIDDLE, _message_s(wire, _MIDDLE, _REPEATS)
    if _slowest(wire, large_s - small_s) < _CLEAR_S:
        size, large_s = _LARGE, _message_s(wire, _LARGE, _REPEATS)
    transfer_s = max(large_s - small_s, peers * size / _MOST_BYTES_PER_S)
    bytes_per_s = peers * (size - _SMALL) / transfer_s
    return Link(max(small_s - peers * _SMALL / bytes_per_s, _LEAST_LATENCY_S), bytes_per_s)


def _message_s(wire: Wire, size: int, repeats: int) -> float:
    """Best time of ``size`` bytes from everyone to everyone else."""
    each = np.full(wire.ranks, size)
    each[wire.rank] = 0
    out, heard = np.zeros(each.sum(), np.uint8), np.zeros(each.sum(), np.uint8)
    times = []
    for _ in range(1 + repeats):
        start = perf_counter()
        wire.swap(heard, out, each, each, f"{wire.name}, link probe")
        times.append(perf_counter() - start)
    return min(times[1:])


def _slowest(wire: Wire, seconds: float) -> float:
    """Return the most that any rank has: the same answer everywhere, or some would wait for a message."""
    each = np.ones(wire.ranks, np.int64)
    out = np.full(wire.ranks, seconds)
    heard = out.copy()
    wire.swap(heard, out, each, each, f"{wire.name}, link probe")
    return float(heard.max())
