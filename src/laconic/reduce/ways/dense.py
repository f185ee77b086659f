"""The sum of dense tensors in rank order: every rank sums one segment and tells the others.

::

    segment r of every rank --> rank r: 0 + x0 + x1 + ... --> all

It sends what a ring does, ``2 (N - 1) / N`` of the tensor. Unlike gloo's, where the order depends on a
value's place, the result is the same bits whatever the tensor was cut into, and what all other methods return.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from laconic.exchange.transport import Message, even_bounds
from laconic.reduce.channel import Channel

__all__ = ["Exact", "sum_dense", "unite_dense"]

Values = NDArray[Any]


@dataclass(frozen=True, slots=True)
class Exact:
    """Gradients travel as they are, but for those that are zero where leaving them out is faster."""


def sum_dense(channel: Channel, x: Values) -> None:
    """Sum over all ranks, in place; integers wrap."""
    _reduce(channel, x, np.add)


def unite_dense(channel: Channel, words: Values) -> None:
    """Bitwise or over all ranks, in place."""
    _reduce(channel, words, np.bitwise_or)


def _reduce(channel: Channel, x: Values, combine: np.ufunc) -> None:
    bounds = even_bounds(len(x), channel.ranks)
    sizes_N = np.diff(bounds)
    own = x[bounds[channel.rank] : bounds[channel.rank + 1]]
    heard_NS = channel.buffer("segments", channel.ranks * len(own), x.dtype).reshape(channel.ranks, len(own))
    channel.swap(heard_NS.reshape(-1), Message.each(x, sizes_N), np.full(channel.ranks, len(own)))
    combine(heard_NS[0], own.dtype.type(0), out=own)  # -0.0 becomes 0.0, as in a sum from 0
    for part in heard_NS[1:]:
        combine(own, part, out=own)
    channel.swap(x, channel.to_all(own), sizes_N)
