"""Dynamic communication thresholding (DCT): send the large entries of every layer; the rest waits in memory.

After the KDD'21 method for data parallelism::

    memory += gradient
    send entries of at least the layer's threshold; they leave memory
    gradient = sum of what all ranks sent, in rank order

Different here: values travel within a bound, what that bound cost returns to memory, and places are coded near
their entropy. A threshold is a quantile of ``|memory + gradient|``; between two looks memory fills up and more and
more entries pass, so besides every ``refresh`` steps there is a look when the share that is sent has drifted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field

import numpy as np
from numpy.typing import NDArray

from laconic import kernels
from laconic.codecs import Bounded
from laconic.codecs.batch import BlockCodec
from laconic.codecs.codec import expect_codec
from laconic.errors import ConfigError
from laconic.exchange.transport import bounds_of
from laconic.reduce.channel import Channel
from laconic.reduce.ways.coded import decode_pieces, encode_pieces

__all__ = ["LargeFirst", "LayerMemory", "sum_large"]

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]
_TINY, _HUGE = (
    float(x) for x in (np.finfo(np.float32).tiny, np.finfo(np.float32).max)
)  # zeros are never sent


@dataclass(frozen=True, slots=True)
class LargeFirst:
    """Which entries are large, and how they travel."""

    keep: float = 0.01
    """Share of entries to send, of every layer."""

    _: KW_ONLY

    least: int = 256
    """Entries to send of a small layer, if it has so many: biases and last layers matter more than their size."""

    refresh: int = 1000
    """Steps after which thresholds are looked for again, at the latest."""

    drift: float | None = 1.5
    """Look again when this many times more, or fewer, entries than ``keep`` are sent; None: never before."""

    sample: int | None = 1 << 16
    """Most entries of a layer to look at; None: all."""

    values: BlockCodec | None = field(default_factory=lambda: Bounded(0.3, relative_to="rms"))
    """Codec of the entries that are sent; None: float32."""

    def __post_init__(self) -> None:
        expect_codec("large_first.values", self.values)
        if not 0 < self.keep <= 1:
            raise ConfigError(f"large_first.keep: expected a share above 0 and up to 1, got {self.keep!r}")
        if self.least < 1:
            raise ConfigError(f"large_first.least: expected at least 1 entry, got {self.least!r}")
        if self.refresh < 1:
            raise ConfigError(f"large_first.refresh: expected at least 1 step, got {self.refresh!r}")
        if self.drift is not None and not self.drift > 1:
            raise ConfigError(f"large_first.drift: expected a factor above 1, or None, got {self.drift!r}")
        if self.sample is not None and self.sample < 1:
            raise ConfigError(f"large_first.sample: expected at least 1 entry, or None, got {self.sample!r}")

    def kept(self, words: int) -> int:
        """Entries to send out of so many."""
        return min(max(round(self.keep * words), self.least), words)


class LayerMemory:
    """What neighboring layers have not sent yet, and their thresholds: one flat array."""

    def __init__(self, sizes: Sequence[int], names: Sequence[str] = ()) -> None:
        self.names = tuple(names)
        self.bounds: Ints = bounds_of(np.array(sizes, np.int64))
        self.values: Floats = np.zeros(int(self.bounds[-1]), np.float32)
        self.thresholds: Floats = np.zeros(len(sizes), np.float32)
        self.ages: Ints = np.zeros(len(sizes), np.int64)
        """Steps since each threshold was looked for; 0: it is due."""

    def look(self, gradient: Floats, how: LargeFirst) -> None:
        """Set thresholds that are due so that the wanted share of their layer passes."""
        for layer in np.flatnonzero((self.ages == 0) | (self.ages >= how.refresh)).tolist():
            start, end = self.bounds[layer : layer + 2].tolist()
            stride = 1 if how.sample is None else max(1, (end - start) // how.sample)
            with np.errstate(all="ignore"):
                sizes = np.abs(self.values[start:end:stride] + gradient[start:end:stride])
            kept = -(-how.kept(end - start) * len(sizes) // max(end - start, 1))
            if kept:  # NaN sorts behind everything, and is always sent
                self.thresholds[layer] = np.clip(np.partition(sizes, -kept)[-kept], _TINY, _HUGE)
            self.ages[layer] = 0

    def grow_older(self, counts_L: Ints, how: LargeFirst) -> None:
        """Note what was sent: thresholds of layers that send too much or too little are due."""
        self.ages += 1
        if how.drift is not None:
            wanted_L = np.array([how.kept(words) for words in np.diff(self.bounds).tolist()])
            self.ages[(counts_L > how.drift * wanted_L) | (counts_L * how.drift < wanted_L)] = 0


def sum_large(channel: Channel, gradient: Floats, memory: LayerMemory, how: LargeFirst) -> int:
    """Replace the gradient by the sum of what ranks send of theirs; returns how many entries this one sent."""
    active = kernels.active()
    memory.look(gradient, how)
    index = channel.buffer("index", active.sparse_index_room(len(gradient), 1), np.uint8)
    values = channel.buffer("values", len(gradient), np.float32)
    counts_L = np.empty(len(memory.thresholds), np.int64)
    index_bytes, count = active.compact_large(
        gradient, memory.values, memory.bounds, memory.thresholds, index, values, counts_L
    )
    index, values = index[:index_bytes], values[:count]
    memory.grow_older(counts_L, how)
    message, sizes_L = values.view(np.uint8), 4 * counts_L
    if how.values is not None:
        message, sizes_L, _ = encode_pieces(channel, how.values, values, counts_L)
    layers = len(counts_L)
    messages = [channel.to_all(index), channel.to_all(message)]
    heard_NK = channel.announce_to_all(index_bytes, *sizes_L.tolist(), *counts_L.tolist(), messages=messages)
    index_N = np.ascontiguousarray(heard_NK[:, 0])
    sizes_NL, counts_NL = heard_NK[:, 1 : 1 + layers], heard_NK[:, 1 + layers :]
    heard_index = channel.buffer("heard index", int(index_N.sum()), np.uint8)
    channel.receive(heard_index, index_N)
    heard = channel.buffer("heard message", int(sizes_NL.sum()), np.uint8)
    channel.receive(heard, sizes_NL.sum(axis=1))
    if how.values is None:
        heard_values = heard.view(np.float32)
    else:
        heard_values = decode_pieces(channel, how.values, heard, sizes_NL.reshape(-1), counts_NL.reshape(-1))
    index_bounds, value_bounds = bounds_of(index_N), bounds_of(counts_NL.sum(axis=1))
    if how.values is not None:  # what the bound cost goes back to memory
        first, last = value_bounds[channel.rank : channel.rank + 2]
        with np.errstate(invalid="ignore"):
            lost = values - heard_values[first:last]
        np.nan_to_num(lost, copy=False, nan=0.0, posinf=0.0, neginf=0.0)
        active.place_sum(index, np.array([0, index_bytes]), lost, np.array([0, count]), 1, memory.values)
    active.place_sum(heard_index, index_bounds, heard_values, value_bounds, 1, gradient)
    return count
