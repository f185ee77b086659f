"""Sums of sparse integers by sketches: cells add, indices unite, and everyone peels the sum.

Between hosts alone the other ways send less; this one adds up inside the network, where a switch
knows no index. A sketch is sized for the union that a sample promises. If the sum does not peel,
the next attempt is sized for what cannot be exceeded, with other hashes; after that the sum is made
by owners. Whatever happens, it is the exact sum: all ranks decode the same bytes, so they decide
alike.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from laconic.codecs import Sketch
from laconic.errors import ConfigError, PeelingError
from laconic.exchange.ranks.transport import Channel
from laconic.reduce.ways.dense import sum_dense, unite_dense
from laconic.reduce.ways.sparse import sample_fullness, sum_by_owners

__all__ = ["sum_sketched", "to_codes"]

_SEED = 0x1ACC0


def sum_sketched(channel: Channel, x: NDArray[Any]) -> int:
    """Sum int32 or int64 over all ranks, in place; returns how many sketches did not peel.

    ``HeadroomError`` on all ranks where a sum might not fit the type.
    """
    count, largest = int(np.count_nonzero(x)), max(int(x.max(initial=0)), -int(x.min(initial=0)))
    heard_N2 = channel.announce_to_all(count, largest)
    most = min(int(heard_N2[:, 0].sum()), len(x))
    dtype: Literal["int32", "int64"] = "int32" if x.dtype == np.int32 else "int64"
    fullness = sample_fullness(channel, x)
    guess = min(most, int(1.1 * fullness.union[0] * len(x)) + 1000)
    for attempt, nonzeros in enumerate((guess, most)):
        sketch = Sketch.for_union(len(x), nonzeros, seed=_SEED + attempt, dtype=dtype)
        sketch.check_headroom(int(heard_N2[:, 1].max()), channel.ranks)
        block = sketch.encode(torch.from_numpy(x))
        cells, index = sketch.cells_and_index(block)
        sum_dense(channel, cells)
        unite_dense(channel, index)
        try:
            x[:] = sketch.decode(block, x.shape, dtype=torch.from_numpy(x).dtype).numpy()
        except PeelingError:
            continue
        return attempt
    sum_by_owners(channel, x, 1)
    return 2


def to_codes(channel: Channel, x: NDArray[Any], step: float) -> NDArray[np.int32]:
    """Round floats to multiples of a step that all ranks share.

    ``ConfigError`` on all ranks where a value of one does not fit.
    """
    with np.errstate(all="ignore"):
        codes: NDArray[Any] = np.multiply(x, x.dtype.type(1 / step))
        np.rint(codes, out=codes)
        fits = bool(codes.max(initial=0) < 2**31 and codes.min(initial=0) > -(2**31))  # NaN does not
    if not channel.announce_to_all(int(fits)).all():
        raise ConfigError(
            f"all-reduce: step={step!r}: expected finite values below {2**31 * step:g} on every rank, got others; "
            "take a larger step, or another method"
        )
    return codes.astype(np.int32, copy=False)
