"""The sum of dense tensors in rank order: every rank sums one segment and tells the others.

::

    segment r of every rank --> rank r: 0 + x0 + x1 + ... --> all

It sends what a ring does, ``2 (N - 1) / N`` of the tensor. In gloo's ring the order of addition
depends on a value's place. Here the result is the same bits whatever the tensor was cut into, and
all other exact ways return them too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from laconic.exchange.ranks.transport import Channel, Message, even_bounds

__all__ = ["Exact", "sum_dense", "unite_dense"]

Values = NDArray[Any]


@dataclass(frozen=True, slots=True)
class Exact:
    """Gradients travel as they are; zeros are left out where that is faster.

    >>> model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 1))
    >>> compressor = laconic.register_ddp(model, laconic.Exact())
    >>> model(torch.ones(4, 8)).sum().backward()
    >>> model.module.bias.grad
    tensor([4.])
    >>> compressor.close()
    """


def sum_dense(channel: Channel, x: Values) -> None:
    """Sum over all ranks, in place; integers wrap."""
    _reduce(channel, x, np.add)


def unite_dense(channel: Channel, words: Values) -> None:
    """Replace words by their bitwise or over all ranks."""
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
