"""First values of embedding rows: a function of seed, table and row, for any number of ranks."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from laconic import kernels
from laconic.errors import ConfigError
from laconic.exchange.tables.copies import HotRows
from laconic.exchange.tables.layout import Layout

__all__ = ["initialize_rows"]

Ints = NDArray[np.int64]

_PIECE = 1 << 18  # numbers that are drawn at a time, and are in the cache when they are scaled


def initialize_rows(weight_RD: Tensor, layout: Layout, hot: HotRows, seed: int) -> None:
    """Fill a rank's shards and copies: uniform within 1 / sqrt(rows of the table), as DLRM does.

    ``layout`` is that of all parts. No other rank's rows are drawn.
    """
    if not 0 <= seed < 2**63:
        raise ConfigError(f"embeddings.seed: expected 0 to 2^63 - 1, got {seed!r}")
    drawn = np.empty((max(_PIECE // weight_RD.shape[1], 1), weight_RD.shape[1]), np.float32)
    for p, t in enumerate(hot.table_P):
        rows = hot.tables[t].rows
        ids: Ints | range = range(rows)[layout.shard_ids(p, layout.rank)] if p == t else hot.ids[t]
        at, limit = int(layout.base_T[p]), rows**-0.5
        for piece in _pieces(ids, len(drawn)):
            values = drawn[: len(piece)]
            kernels.active().first_rows(values, piece, seed, int(t))
            rows_RD = weight_RD[at : at + len(piece)]
            torch.mul(torch.from_numpy(values).to(weight_RD.dtype), 2 * limit, out=rows_RD).sub_(limit)
            at += len(piece)


def _pieces(ids: Ints | range, size: int) -> Iterator[Ints]:
    for begin in range(0, len(ids), size):
        piece = ids[begin : begin + size]
        yield np.arange(piece.start, piece.stop, piece.step) if isinstance(piece, range) else piece
