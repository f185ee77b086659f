"""The table of blocks that one native call works through.

Row ``i`` describes block ``i`` in two tensors, because a block has integers and floats::

    longs_N6     kind  rows  cols  flags  seed  window
    doubles_N3   bound  lz_penalty  huffman_penalty

``N`` = number of blocks. The tables are values: build them once per plan and shape, use them
every step.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from laconic.errors import ConfigError

if TYPE_CHECKING:
    from torch import Tensor

MAX_VALUES = 2**32 - 1
"""Of one block: kernels count in 32 bits."""
MAX_CALL_VALUES = 2**40
"""Of all blocks of one call."""


class Kind(IntEnum):
    """What turns a matrix into bytes; the numbers are those of ``csrc/blocks/batch.h``."""

    ROWS = 0
    VECTOR_LZ = 1
    HUFFMAN = 2
    HYBRID = 3
    FLOAT16 = 4
    BFLOAT16 = 5
    INT8 = 6
    INT4 = 7
    FLOAT32 = 8
    LOSSLESS = 9


RELATIVE = 1
"""Flag: the bound is a share of the block's range."""

DITHERED = 2
"""Flag: rounding is stochastic, from ``seed``."""

RMS_RELATIVE = 4
"""Flag: the bound is a share of the block's root mean square; never with ``RELATIVE``."""


@dataclass(frozen=True, slots=True)
class BlockSpec:
    """One row of the table, without its shape."""

    kind: Kind
    bound: float = 1.0
    flags: int = 0
    seed: int = 0
    window: int = 1
    lz_penalty: float = 0.0
    huffman_penalty: float = 0.0


@dataclass(frozen=True, slots=True, eq=False)
class BlockTable:
    """Specification and shape of every block of a batch, ready for the kernels."""

    longs_N6: Tensor
    doubles_N3: Tensor
    arrays: tuple[NDArray[np.int64], NDArray[np.float64]]
    """The same memory for the native kernels, which read arrays faster than tensors."""

    @classmethod
    def of(cls, blocks: Iterable[tuple[BlockSpec, int, int]]) -> BlockTable:
        """Build the table from (specification, rows, columns) of each block."""
        longs: list[tuple[int, int, int, int, int, int]] = []
        doubles: list[tuple[float, float, float]] = []
        for spec, rows, cols in blocks:
            if max(rows, cols, rows * cols) > MAX_VALUES:
                raise ConfigError(
                    f"block {len(longs)}: expected at most {MAX_VALUES} values, got {rows} x {cols}; split it"
                )
            seed = spec.seed % 2**64
            signed = seed - 2**64 if seed >= 2**63 else seed
            longs.append((int(spec.kind), rows, cols, spec.flags, signed, spec.window))
            doubles.append((spec.bound, spec.lz_penalty, spec.huffman_penalty))
        longs_N6 = np.array(longs, dtype=np.int64).reshape(-1, 6)
        doubles_N3 = np.array(doubles, dtype=np.float64).reshape(-1, 3)
        from torch import from_numpy  # noqa: PLC0415  (an aggregator has no blocks and need not wait for torch)

        return cls(from_numpy(longs_N6), from_numpy(doubles_N3), (longs_N6, doubles_N3))

    def __len__(self) -> int:
        return self.longs_N6.shape[0]

    @property
    def values(self) -> int:
        """How many float32 values all blocks have together."""
        longs, _ = self.arrays
        return int((longs[:, 1] * longs[:, 2]).sum())
