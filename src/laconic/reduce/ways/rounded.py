"""Sums of floats as integers: multiples of a shared step, added by the ranks or by a network.

The step is a power of two, as small as int32 allows for the sum of all ranks, so that nothing
overflows on the way. Rounding to it moves no value by more than half a step, 2^-31 of the largest
for two ranks. The integers add exactly, in any order: whoever adds them, the result is the same
bits. Where few entries are not zero, ranks agree on which by a bitwise or, and add only those.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, frexp
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from laconic.exchange.ranks.transport import Channel
from laconic.reduce.ways.dense import sum_dense, unite_dense
from laconic.reduce.ways.sparse import sample_fullness

__all__ = ["Adder", "Rounded", "sum_rounded"]

_SPARSE = 0.5  # share of entries that any rank has, below which an index pays: it is one bit for each of 32


@dataclass(frozen=True, slots=True)
class Rounded:
    """Gradients are summed by the ranks as a network would add them: as int32 multiples of a step.

    >>> model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 1))
    >>> compressor = laconic.register_ddp(model, laconic.Rounded())
    >>> compressor.close()
    """


class Adder(Protocol):
    """Something outside of the ranks that adds what they send; all use it in the same order."""

    def add(self, values: NDArray[np.int32]) -> None:
        """Replace values by their sum over all ranks."""
        ...

    def unite(self, words: NDArray[np.uint32]) -> None:
        """Replace words by their bitwise or over all ranks."""
        ...

    @property
    def bytes_sent(self) -> int:
        """Bytes that this rank sent, so far."""
        ...


def sum_rounded(channel: Channel, x: NDArray[np.float32], network: Adder | None) -> None:
    """Sum float32 over all ranks, in place; where one has NaN or infinities, as floats."""
    before = 0 if network is None else network.bytes_sent
    largest = _largest(channel, x)
    if not np.isfinite(largest):
        sum_dense(channel, x)
        return
    if largest == 0:
        x[:] = 0
        return
    step = 2.0 ** frexp(largest / ((2**31 - 1) // channel.ranks - 1))[1]
    codes = np.rint(x / step).astype(np.int32)
    if sample_fullness(channel, codes).union[0] < _SPARSE:
        there = _unite(channel, codes != 0, network)
        packed = np.ascontiguousarray(codes[there])
        _add(channel, packed, network)
        codes[there] = packed
    else:
        _add(channel, codes, network)
    np.multiply(codes, step, out=x, casting="unsafe")
    if network is not None:
        channel.count(network.bytes_sent - before)


def _largest(channel: Channel, x: NDArray[np.float32]) -> float:
    """Find the largest magnitude on any rank; NaN or infinity if one has any."""
    own = float(np.abs(x).max(initial=0))
    heard = channel.announce_to_all(int(np.float64(own).view(np.int64)))
    return float(heard[:, 0].astype(np.int64).view(np.float64).max())


def _unite(channel: Channel, there: NDArray[np.bool_], network: Adder | None) -> NDArray[np.bool_]:
    words = np.zeros(ceil(len(there) / 32), np.uint32)
    packed = np.packbits(there, bitorder="little")
    words.view(np.uint8)[: len(packed)] = packed
    if network is None:
        unite_dense(channel, words)
    else:
        network.unite(words)
    return np.unpackbits(words.view(np.uint8), bitorder="little")[: len(there)].astype(bool)


def _add(channel: Channel, codes: NDArray[Any], network: Adder | None) -> None:
    if network is None:
        sum_dense(channel, codes)
    else:
        network.add(codes)
