"""What every split does to activations and gradients, whether its ranks are processes or rehearsed in one.

::

    x_BD --select--> values_K --encode--> bytes ... bytes --decode--> values_K --spread--> x_BD with zeros
    g_BD --take, on the same entries--> values_K --encode--> ...                       g_BD with zeros

Shape legend: ``B`` samples, ``D`` columns, ``K`` entries that travel.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from zlib import crc32

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from laconic.codecs.threshold import AnySelection, Threshold
from laconic.errors import ConfigError
from laconic.exchange.ledger import Direction, Entry, Ledger
from laconic.exchange.split_wire import HEADER_BYTES, Parcel

__all__ = ["SplitPart", "ranks_of", "tag_of"]

Floats = NDArray[np.float32]
_ODD = 0x9E3779B97F4A7C15  # turns and targets get seeds far apart


@dataclass(frozen=True, slots=True)
class SplitPart:
    """Encodes and decodes for one split, and keeps account."""

    name: str
    threshold: Threshold
    ledger: Ledger

    def check(self, x_BD: Tensor) -> Floats:
        """Return activations as an array; ``ConfigError`` for what cannot travel."""
        if not isinstance(x_BD, Tensor) or x_BD.dim() != 2:
            shape = tuple(x_BD.shape) if isinstance(x_BD, Tensor) else type(x_BD).__name__
            raise ConfigError(
                f"{self.name}: expected activations of shape (samples, columns), got {shape}; use x.flatten(1)"
            )
        if x_BD.dtype != torch.float32 or not x_BD.is_cpu:
            raise ConfigError(
                f"{self.name}: expected float32 on the CPU, got {x_BD.dtype} on {x_BD.device}; convert with x.float().cpu()"
            )
        return x_BD.detach().contiguous().numpy()

    def pack(self, x_BD: Floats, wants_gradient: bool) -> tuple[AnySelection, Parcel]:
        """Select and encode activations."""
        selection, values_K = self.threshold.select(x_BD)
        mask, values = selection.encode(), self.threshold.encode_values(values_K)
        return selection, Parcel(
            selection.rows, selection.cols, selection.count, wants_gradient, mask, values
        )

    def unpack(self, parcel: Parcel) -> tuple[AnySelection, Floats]:
        """Return the selection of a parcel, and its activations."""
        selection = self.threshold.read_selection(parcel.mask, parcel.rows, parcel.cols, parcel.count)
        return selection, selection.spread(self.threshold.decode_values(parcel.values, parcel.count))

    def unpack_into(self, parcel: Parcel, x_BD: Floats) -> AnySelection:
        """Put the activations of a parcel into a matrix, and return its selection."""
        selection = self.threshold.read_selection(parcel.mask, parcel.rows, parcel.cols, parcel.count)
        selection.spread_into(self.threshold.decode_values(parcel.values, parcel.count), x_BD)
        return selection

    def pack_gradient(self, selection: AnySelection, g_BD: Tensor, turn: int, target: int) -> Parcel:
        """Encode the gradient on the entries that traveled; ``target`` counts the split's targets."""
        gradients_K = selection.take(g_BD.detach().numpy())
        seed = crc32(self.name.encode()) + _ODD * (turn * 1024 + target)
        block = self.threshold.encode_gradients(gradients_K, seed)
        none = np.empty(0, np.uint8)
        return Parcel(selection.rows, selection.cols, selection.count, False, none, block)

    def unpack_gradient(self, selection: AnySelection, parcel: Parcel) -> Tensor:
        """Return the gradient, zero where nothing traveled."""
        gradients_K = self.threshold.decode_gradients(parcel.values, selection.count)
        return torch.from_numpy(selection.spread(gradients_K))

    def add_gradient(self, selection: AnySelection, parcel: Parcel, total_BD: Tensor) -> None:
        """Add the gradient of a parcel."""
        gradients_K = self.threshold.decode_gradients(parcel.values, selection.count)
        selection.add_to(gradients_K, total_BD.numpy())

    def most_value_bytes(self, count: int) -> int:
        """Return the most that ``count`` activations or gradients can take."""
        codecs = (self.threshold.values, self.threshold.gradients)
        return max(4 * count, *(codec.max_bytes((count,)) for codec in codecs if codec is not None), 0)

    def record(
        self,
        direction: Direction,
        parcels: Sequence[Parcel],
        turn: int,
        *,
        encode_s: float = 0.0,
        wire_s: float = 0.0,
        decode_s: float = 0.0,
    ) -> None:
        """Enter what was sent; masks go under ``ids``."""
        before = sum(4 * p.rows * p.cols for p in parcels)
        values, mask = sum(len(p.values) for p in parcels), sum(len(p.mask) for p in parcels)
        sizes = HEADER_BYTES * len(parcels)
        self.ledger.record(
            direction, Entry(turn, np.array([before]), np.array([values]), sizes, encode_s, wire_s, decode_s)
        )
        if direction == "forward":
            self.ledger.record("ids", Entry(turn, np.array([0]), np.array([mask]), 0, 0.0, 0.0, 0.0))


def ranks_of(name: str, where: str, ranks: int | Sequence[int]) -> tuple[int, ...]:
    """Return ranks as a tuple; ``ConfigError`` if there are none or one is there twice."""
    several = (ranks,) if isinstance(ranks, int) else tuple(ranks)
    if not several or len(set(several)) < len(several) or min(several) < 0:
        raise ConfigError(f"{name}: expected {where} as one or more different ranks, got {ranks!r}")
    return several


def tag_of(name: str) -> int:
    """Tag of a split's messages; gloo wants one below 2^31."""
    return crc32(name.encode()) & 0x7FFFFFFF
