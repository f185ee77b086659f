"""From rows to bytes and back, for all tables and ranks of one direction in one native call.

Built once per plan; a step costs a table of blocks, which is a few arrays. A direction in which
every table travels as it is skips the codec altogether, whatever the dtype.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from laconic import kernels
from laconic.codecs import Cast, Lossless
from laconic.codecs.batch import BlockCodec
from laconic.errors import ConfigError, PlanError
from laconic.exchange.ranks.transport import Buffers
from laconic.kernels.blocks import DITHERED, MAX_VALUES, RELATIVE, RMS_RELATIVE, BlockTable, Kind

__all__ = ["Coder"]

Ints = NDArray[np.int64]
Bytes = NDArray[np.uint8]


class Coder:
    """Codecs of all tables in one direction."""

    def __init__(self, codecs: Sequence[BlockCodec | None], dim: int, dtype: torch.dtype) -> None:
        self.dim = dim
        self.item_bytes = dtype.itemsize
        self.exact_T = np.array([codec is None or isinstance(codec, Lossless) for codec in codecs])
        """Tables whose values come back as they were."""
        self.exact = all(codec is None for codec in codecs)
        """Nothing is coded: bytes are those of the values."""
        if not self.exact and dtype != torch.float32:
            raise PlanError(
                f"exchange: codecs work on float32, the tables are {dtype}; use exact communication for them"
            )
        if self.exact:
            return
        specs = [(codec or Cast("fp32")).spec() for codec in codecs]
        self._longs_T6, self._doubles_T3 = BlockTable.of((spec, 0, dim) for spec in specs).arrays
        self._dithered_T = (self._longs_T6[:, 3] & DITHERED) != 0
        self._buffers, self._offsets = Buffers(), np.empty(1, np.int64)

    @property
    def grid_step_T(self) -> NDArray[np.float64]:
        """Step of an unbiased grid that errs as each table's codec does: by a sixth of its square.

        0 where that is not known: exact tables, casts, and bounds that differ by block.
        """
        if self.exact:
            return np.zeros(len(self.exact_T))
        # to the nearest, errors are even within the bound: a third of its square
        return np.where(
            self._absolute_T, self._doubles_T3[:, 0] * np.where(self._dithered_T, 1.0, np.sqrt(2.0)), 0.0
        )

    def encode(
        self,
        rows: NDArray[np.float32],
        counts_MT: Ints,
        seeds: Ints | int,
        scale_MT: NDArray[np.float64] | None = None,
    ) -> tuple[Bytes, Ints]:
        """Return the bytes of M ranks' blocks, back to back, and how many each block has.

        ``seeds`` is one number for all ranks, or one for each. ``scale_MT`` widens the bound of
        each block, where it is the same for all blocks of a table.
        """
        if self.exact:
            return rows.reshape(-1).view(np.uint8), counts_MT * (self.dim * self.item_bytes)
        table = self._table(counts_MT, seeds, scale_MT)
        active = kernels.active()
        out = self._buffers.reserve("encoded", active.max_bytes(table), np.uint8)
        if len(self._offsets) != len(table) + 1:
            self._offsets = np.empty(len(table) + 1, np.int64)
        active.encode_blocks(table, rows.reshape(-1), out, self._offsets, torch.get_num_threads())
        return out[: self._offsets[-1]], np.diff(self._offsets).reshape(counts_MT.shape)

    def decode(self, data: Bytes, bytes_MT: Ints, counts_MT: Ints, out: NDArray[np.float32]) -> None:
        """Fill ``out`` with the rows of M ranks' blocks; ``FormatError`` names a bad one."""
        if self.exact:
            return  # the bytes arrived in place
        table = self._table(counts_MT, 0)
        offsets = np.concatenate([[0], np.cumsum(bytes_MT)])
        kernels.active().decode_blocks(table, data, offsets, out.reshape(-1), torch.get_num_threads())

    @property
    def _absolute_T(self) -> NDArray[np.bool_]:
        """Tables whose blocks all have one bound."""
        bounded_T: NDArray[np.bool_] = self._longs_T6[:, 0] == Kind.ROWS
        bounded_T &= self._longs_T6[:, 3] & (RELATIVE | RMS_RELATIVE) == 0
        return bounded_T

    def _table(
        self, counts_MT: Ints, seeds: Ints | int, scale_MT: NDArray[np.float64] | None = None
    ) -> BlockTable:
        ranks, tables = counts_MT.shape
        if counts_MT.size and int(counts_MT.max()) * self.dim > MAX_VALUES:
            raise ConfigError(
                f"exchange: a block of {counts_MT.max()} rows of {self.dim} is too large; use smaller batches"
            )
        longs = np.tile(self._longs_T6, (ranks, 1))
        longs[:, 1] = counts_MT.ravel()
        # another seed for every table and step, the same for every destination: replicas must agree
        seeds_MT = np.broadcast_to(np.reshape(seeds, (-1, 1)) + np.arange(tables), counts_MT.shape)
        longs[:, 4] = np.where(self._dithered_T, seeds_MT, 0).ravel()
        doubles = np.tile(self._doubles_T3, (ranks, 1))
        if scale_MT is not None:
            doubles[:, 0] *= np.where(self._absolute_T, scale_MT, 1.0).ravel()
        return BlockTable(torch.from_numpy(longs), torch.from_numpy(doubles), (longs, doubles))
