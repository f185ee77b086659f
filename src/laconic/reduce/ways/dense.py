"""The sum of dense tensors in rank order: every rank sums one segment and tells the others.

::

    segment r of every rank --> rank r: 0 + x0 + x1 + ... --> all

It sends what a ring does, ``2 (N - 1) / N`` of the tensor. Unlike gloo's, where the order depends on a
value's place, the result is the same bits whatever the tensor was cut into, and what all other methods return.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from laconic.exchange.wire import even_bounds
from laconic.reduce.parcels import Parcels

__all__ = ["sum_dense", "unite_dense"]

Values = NDArray[Any]


def sum_dense(parcels: Parcels, x: Values) -> None:
    """Sum over all ranks, in place; integers wrap."""
    _reduce(parcels, x, np.add)


def unite_dense(parcels: Parcels, words: Values) -> None:
    """Bitwise or over all ranks, in place."""
    _reduce(parcels, words, np.bitwise_or)


def _reduce(parcels: Parcels, x: Values, combine: np.ufunc) -> None:
    bounds = even_bounds(len(x), parcels.ranks)
    sizes_N = np.diff(bounds)
    own = x[bounds[parcels.rank] : bounds[parcels.rank + 1]]
    heard_NS = parcels.room("segments", parcels.ranks * len(own), x.dtype).reshape(parcels.ranks, len(own))
    parcels.swap(heard_NS.reshape(-1), parcels.for_each(x, sizes_N), np.full(parcels.ranks, len(own)))
    combine(heard_NS[0], own.dtype.type(0), out=own)  # -0.0 becomes 0.0, as in a sum from 0
    for part in heard_NS[1:]:
        combine(own, part, out=own)
    parcels.swap(x, parcels.for_all(own), sizes_N)
