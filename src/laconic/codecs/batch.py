"""Many blocks in one native call: each with its own codec, shape and bound.

This is the form that the exchange uses: the table of a plan is built once, and a step costs one
call to encode and one to decode, whatever the number of tables and destinations::

    batch = Batch.of([(BoundedRows(0.02), (2048, 64)), (Cast("fp16"), (77, 16))])
    buffer, offsets = batch.encode(values)          # values: all blocks back to back, float32
    values = batch.decode(buffer, offsets)
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from laconic import kernels
from laconic.codecs.matrix import (
    block_bytes,
    checked_shape,
    compact,
    empty_values,
    expect_buffer,
    flat_values,
    rows_and_cols,
    thread_count,
)
from laconic.errors import ConfigError
from laconic.kernels.blocks import BlockSpec, BlockTable

__all__ = ["Batch", "BlockCodec"]


class BlockCodec(ABC):
    """A codec whose blocks the kernels write many at a time."""

    __slots__ = ()

    @property
    @abstractmethod
    def wire_id(self) -> int:
        """Number of the block's format in a frame."""

    @abstractmethod
    def spec(self) -> BlockSpec:
        """Return what the kernels need to know of this codec."""

    def matrix(self, shape: tuple[int, ...]) -> tuple[int, int]:
        """Rows and columns that a tensor of this shape has for this codec."""
        return rows_and_cols(shape)

    def max_bytes(self, shape: tuple[int, ...]) -> int:
        """Largest block that a tensor of this shape can become."""
        return _single(self, tuple(shape)).max_bytes

    def encode(self, x: Tensor) -> Tensor:
        """Encode a tensor of any shape; its last dimension is a row."""
        values = flat_values(x, self._name).numpy()
        batch = _single(self, tuple(x.shape))
        out, offsets = np.empty(batch.max_bytes, np.uint8), np.empty(2, np.int64)
        kernels.active().encode_blocks(batch.table, values, out, offsets, torch.get_num_threads())
        return compact(out, int(offsets[1]))

    def decode(self, block: Tensor, shape: tuple[int, ...], dtype: torch.dtype = torch.float32) -> Tensor:
        """Decode a block of a tensor of this shape, to float32."""
        if dtype != torch.float32:
            raise ConfigError(
                f"{self._name}: expected dtype torch.float32, got {dtype}; decode to float32 and convert, "
                "a narrower type would not hold the bound"
            )
        bytes_ = block_bytes(block, self._name).numpy()
        batch = _single(self, tuple(shape))
        out, offsets = empty_values(batch.values), np.array([0, len(bytes_)])
        kernels.active().decode_blocks(batch.table, bytes_, offsets, out, torch.get_num_threads())
        return torch.from_numpy(out.reshape(shape))

    @property
    def _name(self) -> str:
        return type(self).__name__


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """A list of blocks to encode or decode together; build it once, use it every step.

    >>> batch = laconic.Batch.of([(laconic.Cast("fp16"), (2, 3)), (laconic.Lossless(), (4,))])
    >>> values = torch.arange(10.0)  # six of the first block, then four of the second
    >>> buffer, offsets = batch.encode(values)
    >>> torch.equal(batch.decode(buffer, offsets), values)
    True
    """

    table: BlockTable
    max_bytes: int
    """Room that the buffer needs while encoding."""
    values: int
    """float32 values of all blocks together."""

    @classmethod
    def of(cls, blocks: Iterable[tuple[BlockCodec, tuple[int, ...]]]) -> Batch:
        """Batch of (codec, shape) pairs."""
        rows = [(codec.spec(), *codec.matrix(checked_shape(shape, codec._name))) for codec, shape in blocks]
        table = BlockTable.of(rows)
        return cls(table, kernels.active().max_bytes(table), table.values)

    def __len__(self) -> int:
        return len(self.table)

    def encode(
        self, x: Tensor, out: Tensor | None = None, offsets: Tensor | None = None, threads: int | None = None
    ) -> tuple[Tensor, Tensor]:
        """Encode all blocks of ``x``, which holds them back to back.

        Returns the used part of ``out`` and the offsets: block ``i`` is
        ``buffer[offsets[i]:offsets[i + 1]]``. ``out`` (uint8, at least ``max_bytes``) and
        ``offsets`` (int64, one more than blocks) are made if not given. ``threads`` defaults to
        ``torch.get_num_threads()``; the bytes do not depend on it.
        """
        values = flat_values(x, "batch")
        expect_buffer("batch.x", values, torch.float32, self.values, exactly=True)
        out = torch.from_numpy(np.empty(self.max_bytes, np.uint8)) if out is None else out
        offsets = torch.empty(len(self) + 1, dtype=torch.int64) if offsets is None else offsets
        expect_buffer("batch.out", out, torch.uint8, self.max_bytes)
        expect_buffer("batch.offsets", offsets, torch.int64, len(self) + 1, exactly=True)
        kernels.active().encode_blocks(
            self.table, values.numpy(), out.numpy(), offsets.numpy(), thread_count(threads)
        )
        return out[: offsets.numpy()[-1]], offsets

    def decode(
        self, buffer: Tensor, offsets: Tensor, out: Tensor | None = None, threads: int | None = None
    ) -> Tensor:
        """Decode all blocks into one flat float32 tensor.

        ``FormatError`` names the first block that cannot be decoded.
        """
        expect_buffer("batch.offsets", offsets, torch.int64, len(self) + 1, exactly=True)
        out = torch.from_numpy(empty_values(self.values)) if out is None else out
        expect_buffer("batch.out", out, torch.float32, self.values, exactly=True)
        data = block_bytes(buffer, "batch").numpy()
        kernels.active().decode_blocks(self.table, data, offsets.numpy(), out.numpy(), thread_count(threads))
        return out


@lru_cache(maxsize=1024)
def _single(codec: BlockCodec, shape: tuple[int, ...]) -> Batch:
    """Batch of one block; making one costs more than encoding a small block."""
    return Batch.of([(codec, shape)])
