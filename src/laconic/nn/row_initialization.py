"""First values of embedding rows: a function of seed, table and row, whatever the number of ranks."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from laconic.collectives import Layout

__all__ = ["initialize_rows"]

_CHUNK = 1 << 16


def initialize_rows(weight_RD: Tensor, layout: Layout, seed: int) -> None:
    """Fill a rank's shards: uniform within 1 / sqrt(rows of the table), as DLRM does."""
    for t, table in enumerate(layout.tables):
        ids = range(table.rows)[layout.shard_ids(t, layout.rank)]
        limit = table.rows**-0.5
        at = int(layout.base_T[t])
        for chunk, wanted in _chunks(ids):
            generator = torch.Generator().manual_seed((seed << 40) ^ (t << 26) ^ chunk)
            rows = min(_CHUNK, table.rows - chunk * _CHUNK)
            values = torch.rand(rows, weight_RD.shape[1], generator=generator, dtype=weight_RD.dtype)
            picked = values[wanted.start - chunk * _CHUNK :: wanted.step]
            torch.mul(picked, 2 * limit, out=weight_RD[at : at + len(wanted)]).sub_(limit)
            at += len(wanted)


def _chunks(ids: range) -> Iterator[tuple[int, range]]:
    """Split ids into the chunks of rows whose values are drawn together."""
    at = 0
    while at < len(ids):
        chunk = ids[at] // _CHUNK
        end = at + len(range(ids[at], (chunk + 1) * _CHUNK, ids.step))
        yield chunk, ids[at:end]
        at = min(end, len(ids))
