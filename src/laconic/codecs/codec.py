"""What a codec is, and what to write where one is expected and something else was given."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from laconic.codecs.batch import BlockCodec
from laconic.errors import ConfigError

__all__ = ["Codec", "expect_codec"]


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


_BLOCK_CODECS = {
    "bounded": 'laconic.Bounded(0.35, relative_to="rms", rounding="unbiased")',
    "boundedrows": 'laconic.BoundedRows(0.01, relative_to="range")',
    "cast": 'laconic.Cast("fp16")',
    "lossless": "laconic.Lossless()",
}


def expect_codec(where: str, value: object, *others: type) -> None:
    """Refuse all but ``None``, a codec of float32 values, and instances of ``others``."""
    if value is None or isinstance(value, (BlockCodec, *others)):
        return
    examples = {other.__name__.lower(): f"laconic.{other.__name__}()" for other in others} | _BLOCK_CODECS
    name = value if isinstance(value, str) else getattr(value, "__name__", "")
    meant = examples.get(name.lower().replace("_", ""))
    shown = f"the class {value.__name__}" if isinstance(value, type) else repr(value)
    raise ConfigError(
        f"{where}: expected a codec of float32 or None, got {shown}; "
        f"write {meant or ', '.join(examples.values())}"
    )
