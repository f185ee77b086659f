"""Embedding tables spread over ranks, looked up and trained over the compressed exchange.

``exchange.pipeline`` shows what the threads of a rank do in one step. Shape legend: ``B`` samples, ``T`` tables, ``D``
dimensions, ``R`` rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch import Tensor

from laconic.cost.link import Link
from laconic.exchange import RowOptimizer, RowwiseAdagrad, Table
from laconic.exchange.exchange_plan import Policy
from laconic.exchange.rank import Placed
from laconic.exchange.world import GroupWorld, World, one_rank
from laconic.nn.row_module import RowModule, check_settings

__all__ = ["ShardedEmbeddings"]


class ShardedEmbeddings(RowModule):
    """Tables of one dimension over all ranks of a process group; every rank calls it alike.

    In training mode rows and gradients travel as the policy says, and ``backward`` of the loss
    updates the tables: there is no gradient of a table, and nothing for a dense optimizer to do.
    In evaluation mode rows travel exactly.

    So what a training loop does between ``backward`` and ``optimizer.step()`` does not reach rows:

    * Gradient accumulation: rows change at every ``backward``. Join small batches to one ``Lookups``, or divide the
      loss by their number and let rows take as many small steps. A second ``backward`` of one batch is an error.
    * Schedulers: call ``set_rate`` when the learning rate changes, on every rank.
    * Clipping: ``clip_grad_norm_`` does not see gradients of rows; choose a lower rate for them.
    * ``GradScaler``: rows would take steps as many times too long; do not scale a loss that goes through them.
    * Weights within a bag: there are none; make each a bag of its own and weigh what ``wait()`` returns.

    ``copy.deepcopy`` makes embeddings of their own, with the same rows; every rank alike. Averages of parameters, as
    ``AveragedModel`` makes them, do not include rows: they stay what they were when they were copied.
    """

    def __init__(
        self,
        tables: Sequence[Table],
        dim: int,
        *,
        optimizer: RowOptimizer | None = None,
        policy: Policy | None = None,
        seed: int = 0,
        dtype: torch.dtype = torch.float32,
        world: World | None = None,
        hot: Mapping[str, Any] | None = None,
        hot_every: int = 1,
        warm: Mapping[str, Any] | None = None,
        cold_folder: str | Path | None = None,
        look_ahead: bool = False,
    ) -> None:
        """``world`` says who the ranks are; None: those of the default process group, or this one alone.

        ``hot``: ascending ids of rows, by table, of which every rank has a copy; copies are always equal, or are made so
        every ``hot_every`` steps (``StaleCopies`` says how). ``warm``: ascending ids of rows of cold tables that stay in memory.
        ``cold_folder``: where this rank keeps the other rows of cold tables, in files that are gone when it ends. ``look_ahead``: rows of the next
        batch that the one under way does not change travel when it is prefetched, if they travel exactly; prefetch before you compute.
        """
        check_settings(dim, dtype, policy, hot_every)
        if world is None:
            world = GroupWorld() if dist.is_initialized() and dist.get_world_size() > 1 else one_rank()
        folder = None if cold_folder is None else Path(cold_folder)
        kind = (tuple(tables), dim, dtype, optimizer or RowwiseAdagrad())
        super().__init__(Placed(*kind, hot, hot_every, warm, folder, look_ahead), policy, seed, (world,))

    def probe_link(self) -> Link:
        """Measure the link to the other ranks; every rank alike, while nothing is on its way."""
        return self._pipeline.probe_link()

    def table_shard(self, name: str) -> tuple[range, Tensor, Tensor | None]:
        """Ids of a table's rows on this rank, the rows (a view), and their optimizer state.

        What is written to hot ones comes to nobody; ``hot_rows`` has the copies. Of a cold table, ``take_shard`` after writing.
        """
        self._settle_copies()
        return self._shards.view(name)

    def take_shard(self, name: str) -> None:
        """Let lookups find what was written to the view that ``table_shard`` returned."""
        self._shards.take(name)

    def hot_rows(self, name: str) -> tuple[NDArray[np.int64], Tensor, Tensor | None]:
        """Ids of a table's hot rows, this rank's copies (a view), and their optimizer state."""
        self._settle()
        return self._shards.hot_rows(name)
