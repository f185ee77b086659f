"""Embeddings of all ranks of a run in one process: rows, gradients and bytes are those of as many processes.

Used like ``ShardedEmbeddings``, with batches of all ranks together. ``exchange.local`` says how ranks share a process.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from laconic.errors import ConfigError
from laconic.exchange import RowOptimizer, RowwiseAdagrad, Table
from laconic.exchange.exchange_plan import Policy
from laconic.exchange.rank import Placed
from laconic.exchange.world import LocalWorld
from laconic.nn.pipelined import PipelinedEmbeddings
from laconic.nn.row_module import check_settings

__all__ = ["LocalEmbeddings"]


class LocalEmbeddings(PipelinedEmbeddings):
    """All ranks of a run. Bytes in the ledger are those of all ranks together, steps those of one."""

    def __init__(
        self,
        tables: Sequence[Table],
        dim: int,
        ranks: int,
        *,
        optimizer: RowOptimizer | None = None,
        policy: Policy | None = None,
        seed: int = 0,
        dtype: torch.dtype = torch.float32,
        hot: Mapping[str, Any] | None = None,
        hot_every: int = 1,
        warm: Mapping[str, Any] | None = None,
        cold_folder: str | Path | None = None,
        look_ahead: bool = False,
        all_remote: bool = False,
    ) -> None:
        """Take the settings of ``ShardedEmbeddings``; ``ranks`` is their number in the run.

        ``all_remote``: what a rank asks of itself is encoded, counted and decoded too, as nearly
        everything is where ranks are hundreds.
        """
        check_settings(dim, dtype, policy, hot_every)
        if ranks < 1:
            raise ConfigError(f"embeddings.ranks: expected at least 1, got {ranks!r}")
        world = LocalWorld(ranks, patience_s=0)
        kind = (tuple(tables), dim, dtype, optimizer or RowwiseAdagrad())
        folder = None if cold_folder is None else Path(cold_folder)
        placed = Placed(*kind, hot, hot_every, warm, folder, look_ahead, all_remote)
        super().__init__(placed, policy, seed, [world.of(rank) for rank in range(ranks)])

    def table_shard(self, name: str) -> tuple[range, Tensor, Tensor | None]:
        """Ids of a table's rows, here all of them, the rows, and their optimizer state.

        These are copies; ``shards`` has the views into which rows can be written.
        """
        pieces = [shards.view(name) for shards in self.shards()]
        rows = next(table.rows for table in self.layout.tables if table.name == name)
        _, weight_RD, state_R = pieces[0]
        weight = weight_RD.new_empty(rows, self.dim)
        state = None if state_R is None else state_R.new_empty(rows)
        for ids, weight_RD, state_R in pieces:
            weight[ids.start : ids.stop : ids.step] = weight_RD
            if state is not None and state_R is not None:
                state[ids.start : ids.stop : ids.step] = state_R
        return range(rows), weight, state
