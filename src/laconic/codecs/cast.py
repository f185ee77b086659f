"""Cast: the fixed-rate baselines, four or two bytes a value or a few bits with a scale per row.

========= ================== ===========================================================
dtype     bytes per row      what comes back
========= ================== ===========================================================
fp32      4 d                the value, bit by bit: for tables of a batch that must stay exact
fp16      2 d                the nearest float16; beyond 65,519 infinity
bf16      2 d                the nearest bfloat16
int8      d + 8              row minimum + code * scale, 256 levels, float32 scale and bias
int4      ceil(d/2) + 4      the same with 16 levels, float16 scale and bias
========= ================== ===========================================================

Only fp32 guarantees an error: none. A row that is not finite, or whose range is not, comes back as
NaN from int8 and int4 (normative text: ``docs/formats/cast.md``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

from laconic.codecs.batch import BlockCodec
from laconic.errors import ConfigError
from laconic.kernels.blocks import BlockSpec, Kind

__all__ = ["Cast", "CastType"]

CastType = Literal["fp32", "fp16", "bf16", "int8", "int4"]

_KINDS: dict[str, Kind] = {
    "fp32": Kind.FLOAT32,
    "fp16": Kind.FLOAT16,
    "bf16": Kind.BFLOAT16,
    "int8": Kind.INT8,
    "int4": Kind.INT4,
}
_WIRE_IDS = {"fp32": 20, "fp16": 16, "bf16": 17, "int8": 18, "int4": 19}


@dataclass(frozen=True, slots=True)
class Cast(BlockCodec):
    """Fixed-rate cast; the size of a block follows from its shape alone.

    >>> len(laconic.Cast("fp16").encode(torch.ones(3, 4)))
    24
    """

    dtype: CastType = "fp16"
    """What each value becomes on the wire."""

    def __post_init__(self) -> None:
        if self.dtype not in _KINDS:
            raise ConfigError(
                f"cast.dtype: no such type {self.dtype!r} (known: {', '.join(get_args(CastType))})"
            )

    @property
    def wire_id(self) -> int:
        """Number of the block's format in a frame: one for each type."""
        return _WIRE_IDS[self.dtype]

    def spec(self) -> BlockSpec:
        """Return what the kernels need to know."""
        return BlockSpec(_KINDS[self.dtype])

    def decode(self, block: Tensor, shape: tuple[int, ...], dtype: torch.dtype = torch.float32) -> Tensor:
        """Decode to any floating type: there is no bound that a narrower one could break."""
        if not dtype.is_floating_point:
            raise ConfigError(f"Cast: expected a floating dtype, got {dtype}")
        # the two-argument super() does not survive slots=True, which rebuilds the class
        return BlockCodec.decode(self, block, shape).to(dtype)
