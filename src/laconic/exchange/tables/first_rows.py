"""First values of embedding rows: a function of seed, table and row, for any number of ranks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from laconic.errors import ConfigError
from laconic.exchange.tables.copies import HotRows
from laconic.exchange.tables.layout import Layout

__all__ = ["initialize_rows"]

_CHUNK = 1 << 16


def initialize_rows(ranks: Sequence[tuple[Tensor, Layout]], hot: HotRows, seed: int) -> None:
    """Fill shards and copies: uniform within 1 / sqrt(rows of the table), as DLRM does.

    ``ranks``: rows of each rank, and its layout of all parts. What several have is drawn once.
    """
    if not 0 <= seed < 2**63:
        raise ConfigError(f"embeddings.seed: expected 0 to 2^63 - 1, got {seed!r}")
    for p, t in enumerate(hot.table_P):
        table = hot.tables[t]
        wanted: defaultdict[int, list[tuple[Tensor, slice | Tensor]]] = defaultdict(list)
        for weight_RD, layout in ranks:
            at = int(layout.base_T[p])
            shard = range(table.rows)[layout.shard_ids(p, layout.rank)] if p == t else None
            for chunk, places, count in _chunks_of_copies(hot.ids[t]) if shard is None else _chunks(shard):
                wanted[chunk].append((weight_RD[at : at + count], places))
                at += count
        for chunk, parts in wanted.items():
            _fill(parts, seed, int(t), table.rows, chunk)


def _fill(parts: Sequence[tuple[Tensor, slice | Tensor]], seed: int, t: int, rows: int, chunk: int) -> None:
    """Give rows the first values of those places of a chunk that are theirs."""
    limit = rows**-0.5
    # torch's generator keeps 32 bits of its seed; a key has 128
    generator = np.random.Generator(np.random.Philox(key=[seed, t << 32 | chunk]))
    shape = (min(_CHUNK, rows - chunk * _CHUNK), parts[0][0].shape[1])
    values = torch.from_numpy(generator.random(shape, np.float32)).to(parts[0][0].dtype)
    for rows_RD, places in parts:
        torch.mul(values[places], 2 * limit, out=rows_RD).sub_(limit)


def _chunks(ids: range) -> Iterator[tuple[int, slice, int]]:
    """Split ids into the chunks of rows whose values are drawn together.

    Yields the chunk, the places in it and their number.
    """
    at = 0
    while at < len(ids):
        chunk = ids[at] // _CHUNK
        count = len(range(ids[at], min((chunk + 1) * _CHUNK, ids.stop), ids.step))
        yield chunk, slice(ids[at] - chunk * _CHUNK, None, ids.step), count
        at += count


def _chunks_of_copies(ids_H: NDArray[np.int64]) -> Iterator[tuple[int, Tensor, int]]:
    """Do the same for ascending ids of any kind."""
    chunks, counts = np.unique(ids_H // _CHUNK, return_counts=True)
    for chunk, wanted in zip(chunks.tolist(), np.split(ids_H, np.cumsum(counts)[:-1]), strict=True):
        yield chunk, torch.from_numpy(wanted - chunk * _CHUNK), len(wanted)
