"""Dynamic communication thresholding (DCT): large entries of a layer are sent, the rest waits.

After the KDD'21 method for data parallelism::

    memory += gradient
    send entries of at least the layer's threshold; they leave memory
    gradient = sum of what all ranks sent, in rank order

Different here: values travel within a bound, what that bound cost returns to memory, and places are
coded near their entropy. A threshold is a quantile of ``|memory + gradient|``. Between two looks
memory fills up and more and more entries pass, so besides every ``refresh`` steps there is a look
when the share that is sent has drifted. Shape legend: ``N`` ranks, ``L`` layers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from laconic import kernels
from laconic.codecs import Bounded
from laconic.codecs.batch import BlockCodec
from laconic.codecs.codec import expect_codec
from laconic.errors import ConfigError
from laconic.exchange.ranks.transport import Channel, bounds_of
from laconic.kernels import LayerThresholds, SparseParts
from laconic.reduce.ways.coded import decode_pieces, encode_pieces

__all__ = ["HeldBack", "LargeFirst", "LayerMemory", "sum_large"]

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]
_TINY, _HUGE = (
    float(x) for x in (np.finfo(np.float32).tiny, np.finfo(np.float32).max)
)  # zeros are never sent


@dataclass(frozen=True, slots=True)
class LargeFirst:
    """The largest entries of every layer are sent; the rest waits for the next gradient.

    Adagrad and Adam take shorter steps for sums that waited. With them, name the ``optimizer``:
    entries are then divided as it would before they are chosen, sent and held back.

    >>> model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 1))
    >>> how = laconic.LargeFirst(0.25, least=2, values=None)  # values in float32
    >>> compressor = laconic.register_ddp(model, how, bypass=False)
    >>> model(torch.arange(8.0)).sum().backward()
    >>> model.module.weight.grad  # the two largest of eight
    tensor([[0., 0., 0., 0., 0., 0., 6., 7.]])
    >>> compressor.state_dict()["memory"]["weight"]
    tensor([0., 1., 2., 3., 4., 5., 0., 0.])
    >>> compressor.close()
    """

    keep: float = 0.01
    """Share of entries to send, of every layer."""

    _: KW_ONLY

    least: int = 256
    """Entries to send of a small layer, or all it has: biases and last layers matter more than
    their size."""

    refresh: int = 1000
    """Steps after which thresholds are looked for again, at the latest."""

    drift: float | None = 1.5
    """Look again when this many times more, or fewer, entries than ``keep`` are sent; None: never
    before ``refresh`` steps."""

    sample: int | None = 1 << 16
    """Most entries of a layer to look at; None: all."""

    agree_every: int = 128
    """Steps after which ranks add up the squares of gradients that ``optimizer`` divides by."""

    values: BlockCodec | None = field(default_factory=lambda: Bounded(0.3, relative_to="rms"))
    """Codec of the entries that are sent; None: float32."""

    optimizer: torch.optim.Optimizer | None = field(default=None, repr=False, compare=False)
    """The Adagrad, Adam or AdamW that updates the model, None where that is SGD."""

    def __post_init__(self) -> None:
        expect_codec("large_first.values", self.values)
        if not 0 < self.keep <= 1:
            raise ConfigError(f"large_first.keep: expected a share above 0 and up to 1, got {self.keep!r}")
        if self.least < 1:
            raise ConfigError(f"large_first.least: expected at least 1 entry, got {self.least!r}")
        if self.refresh < 1:
            raise ConfigError(f"large_first.refresh: expected at least 1 step, got {self.refresh!r}")
        if self.agree_every < 1:
            raise ConfigError(f"large_first.agree_every: expected at least 1 step, got {self.agree_every!r}")
        if self.drift is not None and not self.drift > 1:
            raise ConfigError(f"large_first.drift: expected a factor above 1, or None, got {self.drift!r}")
        if self.sample is not None and self.sample < 1:
            raise ConfigError(f"large_first.sample: expected at least 1 entry, or None, got {self.sample!r}")

    def kept(self, words: int) -> int:
        """Return the number of entries to send of a layer of ``words``."""
        return min(max(round(self.keep * words), self.least), words)


class LayerMemory:
    """What neighboring layers have not sent yet, and their thresholds: one flat array."""

    def __init__(self, sizes: Sequence[int], names: Sequence[str] = ()) -> None:
        self.names = tuple(names)
        self.bounds: Ints = bounds_of(np.array(sizes, np.int64))
        self.values: Floats = np.zeros(int(self.bounds[-1]), np.float32)
        self.squares: Floats = np.zeros_like(self.values)
        """Squares of gradients that other ranks do not know yet; where nothing is divided, zeros
        that take no memory."""
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
                least = np.partition(sizes, -kept)[-kept]
                self.thresholds[layer] = _HUGE if np.isnan(least) else np.clip(least, _TINY, _HUGE)
            self.ages[layer] = 0

    def grow_older(self, counts_L: Ints, how: LargeFirst) -> None:
        """Note what was sent: thresholds of layers that send too much or too little are due."""
        self.ages += 1
        if how.drift is not None:
            wanted_L = np.array([how.kept(words) for words in np.diff(self.bounds).tolist()])
            self.ages[(counts_L > how.drift * wanted_L) | (counts_L * how.drift < wanted_L)] = 0


class HeldBack:
    """What one rank's parameters have not sent yet, by name, and their thresholds.

    DDP makes other buckets after the first step; memory moves with its parameter.
    """

    def __init__(self, rank: int, ranks: int) -> None:
        self._rank, self._ranks = rank, ranks
        self._memory: dict[str, NDArray[Any]] = {}
        self._squares: dict[str, NDArray[Any]] = {}
        self._thresholds: dict[str, tuple[float, int]] = {}
        self._parts: list[LayerMemory] = []  # of the buckets that there are now

    def lay_out(self, layers: Sequence[tuple[str, int]]) -> LayerMemory:
        """Bring together what parameters of these names and sizes hold back.

        It is one array, which they use from now on.
        """
        self._thresholds = self._current_thresholds()
        memory = LayerMemory([size for _, size in layers], [name for name, _ in layers])
        for layer, name in enumerate(memory.names):
            here = slice(*memory.bounds[layer : layer + 2].tolist())
            for kept, values in ((self._memory, memory.values), (self._squares, memory.squares)):
                if name in kept and kept[name].any():
                    values[here] = kept[name].reshape(-1)
                kept[name] = values[here]
            memory.thresholds[layer], memory.ages[layer] = self._thresholds.get(name, (0.0, 0))
        self._parts = [part for part in self._parts if not set(part.names) & set(memory.names)]
        self._parts += [memory] if layers else []
        return memory

    def state_dict(self) -> dict[str, Any]:
        """Return a copy, and whose it is."""
        return {
            "rank": self._rank,
            "ranks": self._ranks,
            "memory": {name: torch.from_numpy(values.copy()) for name, values in self._memory.items()},
            "squares": {
                name: torch.from_numpy(values.copy())
                for name, values in self._squares.items()
                if values.any()
            },
            "thresholds": self._current_thresholds(),
        }

    def load_state_dict(self, state: dict[str, Any], sizes: Mapping[str, int]) -> None:
        """Take back what the same rank of as many saved, and nothing else.

        ``sizes``: numbers of entries of the model's parameters, by name. A state from before ranks
        were in it is anybody's. ``ConfigError``, and nothing has changed, if it is of another.
        """
        mine = (self._rank, self._ranks)
        saved = (state.get("rank", self._rank), state.get("ranks", self._ranks))
        if state["memory"] and saved != mine:
            raise ConfigError(
                f"register_ddp: expected what rank {mine[0]} of {mine[1]} held back, got that of rank {saved[0]} of "
                f"{saved[1]}; save compressor.state_dict() on every rank, in a file of its own, and load it there"
            )
        squares = state.get("squares", {})
        for name, values in (*state["memory"].items(), *squares.items()):
            if name not in sizes:
                raise ConfigError(f"register_ddp: the saved memory is of {name!r}, which this model has not")
            if values.numel() != sizes[name]:
                raise ConfigError(
                    f"register_ddp: expected {sizes[name]} saved entries of {name!r}, got {values.numel()}; "
                    "load what a model of the same sizes saved"
                )
        self._memory = {name: values.numpy().copy() for name, values in state["memory"].items()}
        self._squares = {name: values.numpy().copy() for name, values in squares.items()}
        self._thresholds = dict(state["thresholds"])
        self._parts.clear()

    def _current_thresholds(self) -> dict[str, tuple[float, int]]:
        found = dict(self._thresholds)
        for part in self._parts:
            now = zip(part.thresholds.tolist(), part.ages.tolist(), strict=True)
            found.update(zip(part.names, now, strict=True))
        return found


def sum_large(channel: Channel, gradient: Floats, memory: LayerMemory, how: LargeFirst) -> int:
    """Replace the gradient by the sum of what ranks send of theirs.

    Returns the number of entries that this rank sent.
    """
    active = kernels.active()
    memory.look(gradient, how)
    index = channel.buffer("index", active.sparse_index_room(len(gradient), 1), np.uint8)
    values = channel.buffer("values", len(gradient), np.float32)
    counts_L = np.empty(len(memory.thresholds), np.int64)
    index_bytes, count = active.compact_large(
        gradient, memory.values, LayerThresholds(memory.bounds, memory.thresholds), index, values, counts_L
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
        own = SparseParts(index, np.array([0, index_bytes]), lost, np.array([0, count]))
        active.place_sum(own, 1, memory.values)
    active.place_sum(SparseParts(heard_index, index_bounds, heard_values, value_bounds), 1, gradient)
    return count
