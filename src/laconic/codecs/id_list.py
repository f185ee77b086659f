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
from laconic.codecs.matrix import block_bytes, compact, expect_buffer, thread_count
from laconic.errors import ConfigError, FormatError

__all__ = ["IdList"]

_TRUSTED_IDS_PER_BYTE = 64
"""A block may say that it has this many ids per byte without the caller confirming it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class IdList:
    """Lossless codec for ids."""

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
        counts = torch.tensor([prod(shape)])
        return self.decode_lists(block, torch.tensor([0, block.numel()]), counts).view(shape)

    def encode_lists(
        self,
        ids: Tensor,
        counts: Tensor,
        out: Tensor | None = None,
        offsets: Tensor | None = None,
        threads: int | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Encode many lists, back to back in ``ids`` with ``counts`` ids each, in one call.

        Returns the used part of ``out`` and the offsets, as ``Batch.encode`` does.
        """
        ids = _flat_ids(ids)
        counts = _checked_counts(counts)
        if int(counts.sum()) != ids.numel():
            raise ConfigError(
                f"IdList: expected counts that add up to {ids.numel()} ids, got {counts.tolist()}"
            )
        room = 8 * ids.numel() + 16 * counts.numel()
        out = torch.from_numpy(np.empty(room, np.uint8)) if out is None else out
        offsets = torch.empty(counts.numel() + 1, dtype=torch.int64) if offsets is None else offsets
        expect_buffer("IdList.out", out, torch.uint8, room)
        expect_buffer("IdList.offsets", offsets, torch.int64, counts.numel() + 1, exactly=True)
        kernels.active().encode_ids(
            counts.numpy(), ids.numpy(), out.numpy(), offsets.numpy(), thread_count(threads)
        )
        return out[: offsets.numpy()[-1]], offsets

    def decode_lists(
        self,
        buffer: Tensor,
        offsets: Tensor,
        counts: Tensor,
        out: Tensor | None = None,
        threads: int | None = None,
    ) -> Tensor:
        """Decode many lists in one call; ``FormatError`` names the first bad one."""
        counts = _checked_counts(counts)
        total = int(counts.sum())
        out = torch.from_numpy(np.empty(total, np.int64)) if out is None else out
        expect_buffer("IdList.out", out, torch.int64, total, exactly=True)
        expect_buffer("IdList.offsets", offsets, torch.int64, counts.numel() + 1, exactly=True)
        data = block_bytes(buffer, "IdList").numpy()
        kernels.active().decode_ids(counts.numpy(), data, offsets.numpy(), out.numpy(), thread_count(threads))
        return out

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


def _checked_counts(counts: Tensor) -> Tensor:
    if counts.dtype not in (torch.int64, torch.int32) or counts.dim() != 1 or bool((counts < 0).any()):
        raise ConfigError(f"IdList: expected counts as 1-D integers of at least 0, got {counts!r}")
    return counts.to(torch.int64).contiguous()
