"""Threshold: only the largest entries of every row travel, and gradients on the same entries.

This is DCT-MP (Gupta et al., "Training Recommender Systems at Scale: Communication-Efficient Model
and Data Parallelism", KDD 2021), with these differences:

* The Laplace fit is over entries that are not zero. So after a ReLU the share that is kept is the
  share that was asked for.
* Zeros never travel. The mask is entropy-coded or a bitmap.
* Values are quantized, gradients without bias.

Nothing is remembered from step to step.

Shape legend: ``B`` rows, ``D`` columns, ``K`` entries that travel.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, replace
from typing import Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray

from laconic import kernels
from laconic.codecs.batch import BlockCodec
from laconic.codecs.bit_selection import BitSelection, bits_bytes
from laconic.codecs.bounded_rows import Bounded, BoundedRows
from laconic.codecs.codec import expect_codec
from laconic.codecs.selection import Selection
from laconic.errors import ConfigError, FormatError

__all__ = ["AnySelection", "Mask", "Threshold", "ThresholdMethod"]

ThresholdMethod = Literal["laplace", "topk"]
Mask = Literal["coded", "bits"]
AnySelection = Selection | BitSelection

Bytes = NDArray[np.uint8]
Floats = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Threshold:
    """Which activations of a split travel, and the codecs of these and of their gradients.

    >>> threshold = laconic.Threshold(0.25, method="topk", values=None)
    >>> x_BD = torch.tensor([[0.1, -3.0, 0.2, 0.0], [5.0, 0.0, 0.0, -1.0]])
    >>> selection, values_K = threshold.select(x_BD.numpy())
    >>> selection.spread(values_K).tolist()
    [[0.0, -3.0, 0.0, 0.0], [5.0, 0.0, 0.0, 0.0]]
    """

    keep: float = 0.25
    """Share of a row's entries that travel; 1: all, without a mask."""

    _: KW_ONLY

    method: ThresholdMethod = "laplace"
    """How a row's threshold is found: from a Laplace distribution fitted to it, or so that exactly
    ``round(keep * D)`` entries reach it, which takes longer."""

    mask: Mask = "coded"
    """How the message says which entries travel. "coded": near the entropy of the mask, 0.03 to 0.6
    bit an entry. "bits": one bit for each entry, which takes a fifth of the time."""

    values: BlockCodec | None = Bounded(0.1, relative_to="rms")  # noqa: RUF009
    """Codec of activations that travel; None: float32."""

    gradients: BlockCodec | None = Bounded(0.5, relative_to="rms", rounding="unbiased")  # noqa: RUF009
    """Codec of their gradients; None: float32.

    A codec with unbiased rounding gets another seed at every step.
    """

    def __post_init__(self) -> None:
        if isinstance(self.keep, bool) or not isinstance(self.keep, (int, float)) or not 0 < self.keep <= 1:
            raise ConfigError(f"threshold.keep: expected a share above 0 and at most 1, got {self.keep!r}")
        if self.method not in get_args(ThresholdMethod):
            known = ", ".join(get_args(ThresholdMethod))
            raise ConfigError(f"threshold.method: no such method {self.method!r} (known: {known})")
        if self.mask not in get_args(Mask):
            known = ", ".join(get_args(Mask))
            raise ConfigError(f"threshold.mask: no such mask {self.mask!r} (known: {known})")
        expect_codec("threshold.values", self.values)
        expect_codec("threshold.gradients", self.gradients)

    @classmethod
    def exact(cls) -> Threshold:
        """Everything travels, bit by bit."""
        return cls(keep=1.0, values=None, gradients=None)

    def select(self, x_BD: Floats) -> tuple[AnySelection, Floats]:
        """Return which entries travel, and their values."""
        rows, cols = x_BD.shape
        if self.keep == 1:
            return Selection(rows, cols, None), x_BD.reshape(-1)
        values = np.empty(x_BD.size, np.float32)  # what is not written takes no memory
        method = get_args(ThresholdMethod).index(self.method)
        if self.mask == "bits":
            bits = np.empty(bits_bytes(rows, cols), np.uint8)
            count = kernels.active().choose_bits(x_BD, self.keep, method, bits, values)
            return BitSelection(rows, cols, count, bits), values[:count]
        places = np.empty(x_BD.size, np.int64)
        count = kernels.active().threshold_rows(x_BD, self.keep, method, places, values)
        return Selection(rows, cols, places[:count].copy()), values[:count]

    def read_selection(self, block: Bytes, rows: int, cols: int, count: int) -> AnySelection:
        """Read which entries travel; ``FormatError`` if the block does not say so."""
        kind = BitSelection if self.mask == "bits" and self.keep != 1 else Selection
        return kind.decode(block, rows, cols, count)

    def encode_values(self, values_K: Floats) -> Bytes:
        """Bytes of activations."""
        return _encode(self.values, values_K)

    def decode_values(self, block: Bytes, count: int) -> Floats:
        """Undo ``encode_values``; ``FormatError`` unless the block has ``count`` values."""
        return _decode(self.values, block, count)

    def encode_gradients(self, gradients_K: Floats, seed: int) -> Bytes:
        """Bytes of gradients; ``seed`` differs from step to step."""
        codec = self.gradients
        if isinstance(codec, BoundedRows) and codec.rounding == "unbiased":
            codec = replace(codec, seed=(codec.seed + seed) % 2**64)
        return _encode(codec, gradients_K)

    def decode_gradients(self, block: Bytes, count: int) -> Floats:
        """Undo ``encode_gradients``."""
        return _decode(self.gradients, block, count)


def _encode(codec: BlockCodec | None, values_K: Floats) -> Bytes:
    if codec is None or not len(values_K):
        return values_K.view(np.uint8)
    return codec.encode(torch.from_numpy(values_K)).numpy()


def _decode(codec: BlockCodec | None, block: Bytes, count: int) -> Floats:
    if codec is None or not count:
        if len(block) != 4 * count:
            raise FormatError(f"threshold: expected {4 * count} bytes for {count} values, got {len(block)}")
        return block.view(np.float32)
    return codec.decode(torch.from_numpy(block), (count,)).numpy()
