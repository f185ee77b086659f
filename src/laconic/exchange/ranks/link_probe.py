"""How fast the link is: a few messages of two sizes between all ranks, over an open transport.

::

    latency = time of the small one            bandwidth = bytes / time of the rest of the large one

64 kB tell the speed of slow links within milliseconds. Where they were too quick to be timed well,
1 MB follow. A message takes as long as the rank that waited longest for it says: a rank that was
late finds the others' bytes already there. The quickest of several messages counts: noise only adds
to the longest wait. The first of every size does not count. It warms buffers up and uses what
a rate-limited link has saved for a burst, so those after it travel at the rate that lasts.
"""

from __future__ import annotations

from time import perf_counter

import numpy as np
from numpy.typing import NDArray

from laconic.cost.link import Link
from laconic.exchange.ranks.transport import Message, Transport

__all__ = ["probe_link"]

_SMALL, _MIDDLE, _LARGE = 1 << 10, 1 << 16, 1 << 20
_REPEATS_OF_SMALL, _REPEATS = 32, 5  # a busy core delays many short messages in a row
_CLEAR_S = 2e-3  # a transfer that takes as long is well above the jitter of a message
_LEAST_LATENCY_S = 1e-6
_MOST_BYTES_PER_S = 1e11  # above any memory; a loopback may look infinitely fast


def probe_link(transport: Transport) -> Link:
    """Measure the link; all ranks call it together, each in the thread that uses the transport.

    The bandwidth is that of bytes from one rank to all others together. All ranks return the same.
    """
    peers = transport.ranks - 1
    if peers == 0:
        return Link(_LEAST_LATENCY_S, _MOST_BYTES_PER_S)
    small_s = _message_s(transport, _SMALL, _REPEATS_OF_SMALL)
    size, large_s = _MIDDLE, _message_s(transport, _MIDDLE, _REPEATS)
    if large_s - small_s < _CLEAR_S:
        size, large_s = _LARGE, _message_s(transport, _LARGE, _REPEATS)
    transfer_s = max(large_s - small_s, peers * size / _MOST_BYTES_PER_S)
    bytes_per_s = peers * (size - _SMALL) / transfer_s
    return Link(max(small_s - peers * _SMALL / bytes_per_s, _LEAST_LATENCY_S), bytes_per_s)


def _message_s(transport: Transport, size: int, repeats: int) -> float:
    """Best time of ``size`` bytes from everyone to everyone else; the same on all ranks."""
    message = Message.same(np.zeros(size, np.uint8), transport.ranks, but=transport.rank)
    heard = np.zeros(message.sizes_N.sum(), np.uint8)
    times = np.zeros(1 + repeats)
    for k in range(1 + repeats):
        start = perf_counter()
        transport.swap(heard, message, message.sizes_N)
        times[k] = perf_counter() - start
    return float(_longest(transport, times[1:]).min())


def _longest(transport: Transport, times: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the most that any rank has, entry by entry."""
    message = Message.same(times, transport.ranks)
    heard = np.empty(transport.ranks * len(times))
    transport.swap(heard, message, message.sizes_N)
    longest: NDArray[np.float64] = heard.reshape(transport.ranks, -1).max(axis=0)
    return longest
