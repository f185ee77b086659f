"""IdList: lossless lists of int64 ids, sorted or not, duplicates allowed.

Ids become differences (or offsets from the smallest), differences become classes by size that
are entropy-coded, and the bits below the class go out raw. The block carries its count
(normative text: ``docs/formats/id_list.md``). Sorted distinct ids cost about 0.05 bit each more
than the entropy of their gaps.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from laconic import kernels
from laconic.codecs.matrix import block_bytes, compact
from laconic.errors import ConfigError, FormatError

__all__ = ["IdList"]

_TRUSTED_IDS_PER_BYTE = 64
"""A block may say that it has this many ids per byte without the caller confirming it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class IdList:
    """Lossless codec for ids.

    >>> ids = torch.arange(0, 3000, 3)
    >>> block = laconic.IdList().encode(ids)
    >>> len(block) < 8 * len(ids) / 20
    True
    >>> torch.equal(laconic.IdList().decode(block), ids)
    True
    """

    wire_id: ClassVar[int] = 6

    def max_bytes(self, shape: tuple[int, ...]) -> int:
        """Largest block that a list of this shape can become."""
        return 8 * prod(shape) + 16

    def encode(self, x: Tensor) -> Tensor:
        """Encode int64 or int32 ids of any shape, in row-major order."""
        ids = _flat_ids(x)
        out, offsets = np.empty(self.max_bytes((ids.numel(),)), np.uint8), np.empty(2, np.int64)
        kernels.active().encode_ids(np.array([ids.numel()]), ids.numpy(), out, offsets, 1)
        return compact(out, int(offsets[1]))

    def decode(
        self, block: Tensor, shape: tuple[int, ...] | None = None, dtype: torch.dtype = torch.int64
    ) -> Tensor:
        """Decode a block; without a shape, to as many ids as the block says it has."""
        if dtype != torch.int64:
            raise ConfigError(f"IdList: expected dtype torch.int64, got {dtype}; decode and convert")
        block = block_bytes(block, "IdList")
        if shape is None:
            shape = (self._count(block),)
        count = prod(shape)
        if count < 0:
            raise ConfigError(f"IdList: expected a shape of at least 0 ids, got {shape!r}")
        ids, ends = np.empty(count, np.int64), np.array([0, block.numel()])
        kernels.active().decode_ids(np.array([count]), block.numpy(), ends, ids, 1)
        return torch.from_numpy(ids).view(shape)

    def _count(self, block: Tensor) -> int:
        count = kernels.active().count_ids(block.numpy())
        if count > _TRUSTED_IDS_PER_BYTE * block.numel():
            raise FormatError(
                f"count: the block says {count} ids in {block.numel()} bytes; pass shape=({count},) if that is right"
            )
        return count


def _flat_ids(x: Tensor) -> Tensor:
    if x.dtype not in (torch.int64, torch.int32):
        raise ConfigError(f"IdList: expected int64 or int32 ids, got {x.dtype}; convert with x.long()")
    if x.device.type != "cpu" or x.layout != torch.strided:
        raise ConfigError(
            f"IdList: expected a dense tensor on the CPU, got {x.layout} on {x.device}; use x.cpu()"
        )
    return x.to(torch.int64).contiguous().view(-1)
