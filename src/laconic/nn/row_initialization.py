"""First values of embedding rows: a function of seed, table and row, whatever the number of ranks."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from laconic.collectives import Layout
from laconic.errors import ConfigError

__all__ = ["initialize_rows"]

_CHUNK = 1 << 16


def initialize_rows(weight_RD: Tensor, layout: Layout, seed: int) -> None:
    """Fill a rank's shards: uniform within 1 / sqrt(rows of the table), as DLRM does."""
    if not 0 <= seed < 2**63:
        raise ConfigError(f"embeddings.seed: expected 0 to 2^63 - 1, got {seed!r}")
    for t, table in enumerate(layout.tables):
        ids = range(table.rows)[layout.shard_ids(t, layout.rank)]
        limit = table.rows**-0.5
        at = int(layout.base_T[t])
        for chunk, wanted in _chunks(ids):
            # torch's generator keeps 32 bits of its seed; a key has 128
            generator = np.random.Generator(np.random.Philox(key=[seed, t << 32 | chunk]))
            shape = (min(_CHUNK, table.rows - chunk * _CHUNK), weight_RD.shape[1])
            values = torch.from_numpy(generator.random(shape, np.float32)).to(weight_RD.dtype)
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
