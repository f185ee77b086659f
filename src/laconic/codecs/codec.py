"""Protocols that cross layers."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

__all__ = ["Codec"]


class Codec(Protocol):
    """A value that turns tensors into bytes and back; pure, frozen, comparable.

    A *block* is bare: whoever decodes it knows its shape. All else that decoding needs is in the
    block, so a decoder needs no settings: any instance decodes what another one encoded.
    """

    @property
    def wire_id(self) -> int:
        """Number of the block's format in a frame; never reused."""
        ...

    def max_bytes(self, shape: tuple[int, ...]) -> int:
        """Largest block that a tensor of this shape can become."""
        ...

    def encode(self, x: Tensor) -> Tensor:
        """Return the block: 1-D, uint8."""
        ...

    def decode(self, block: Tensor, shape: tuple[int, ...], dtype: torch.dtype = torch.float32) -> Tensor:
        """Return the tensor; ``FormatError`` if the block is not one of this shape."""
        ...
