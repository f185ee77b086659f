"""Embedding tables spread over ranks, looked up and trained over the compressed exchange.

``exchange.pipeline`` shows what the threads of a rank do in one step. Shape legend: ``B`` samples, ``T`` tables, ``D``
dimensions, ``R`` rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch import Tensor

from laconic.cost.link import Link
from laconic.errors import PlanError
from laconic.exchange import Layout, Ledger, RowOptimizer, RowwiseAdagrad, Table
from laconic.exchange.errors_seen import Observer
from laconic.exchange.exchange_plan import ExchangePlan, Policy
from laconic.exchange.ids import IdExchange
from laconic.exchange.pipeline import Manner, Pipeline
from laconic.exchange.rows import RowExchange
from laconic.exchange.stale_copies import StaleCopies
from laconic.exchange.tables.copies import HotRows, WarmRows
from laconic.exchange.tables.shards import TableShards
from laconic.exchange.world import GroupWorld, World, one_rank
from laconic.lookups import Lookups
from laconic.nn.pending import Pending
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
        super().__init__()
        check_settings(dim, dtype, policy, hot_every)
        if world is None:
            world = GroupWorld() if dist.is_initialized() and dist.get_world_size() > 1 else one_rank()
        places = {"hot": hot, "hot_every": hot_every, "warm": warm, "cold_folder": cold_folder}
        self._made_with: dict[str, Any] = {"world": world, "look_ahead": look_ahead, **places}
        self.dim, self.policy = dim, policy
        self.layout = Layout(tuple(tables), world.ranks, world.rank)
        self._hot = HotRows(tables, hot)
        hot_every = hot_every if self._hot.ids and world.ranks > 1 else 1
        alone = len(self._hot.ids) if hot_every > 1 else 0
        warm_rows = WarmRows(tables, warm, self._hot)
        parts = Layout(self._hot.parts, world.ranks, world.rank, alone, warm_rows.in_file(self.layout))
        folder = None if cold_folder is None else Path(cold_folder)
        self._shards = TableShards(self._hot, parts, dim, optimizer or RowwiseAdagrad(), dtype, folder)
        self._shards.initialize(seed)
        self.ledger = Ledger(tuple(part.name for part in parts.tables))
        self._exact = {
            coded: ExchangePlan.exact(len(parts.tables), coded_ids=coded) for coded in (True, False)
        }
        self._placed = self._hot.digest + warm_rows.digest
        kind = (self.layout.tables, dim, dtype, self.optimizer, self._placed, places["hot_every"], look_ahead)
        digest = int.from_bytes(blake2b(repr(kind).encode(), digest_size=8).digest(), "little") >> 1
        ids = IdExchange(parts, self._hot, world.transport("exchange of ids"), digest)
        ids.meet()
        transport = world.transport("exchange of rows")
        stale = StaleCopies(self._hot, self._shards, transport, digest) if hot_every > 1 else None
        rows = RowExchange(self._shards, self._hot.table_P, transport, before_update=stale)
        self._pipeline = Pipeline(
            ids, rows, self._manner, stale=stale, stale_every=hot_every, look_ahead=look_ahead
        )
        self.anchor = torch.zeros(0, requires_grad=True)

    @property
    def step(self) -> int:
        """Training steps begun; policies and dither count by it."""
        return self._pipeline.step

    @step.setter
    def step(self, step: int) -> None:
        self._pipeline.step = step

    @property
    def looks_ahead(self) -> bool:
        """Whether rows of a batch travel when it is prefetched: do that before you compute."""
        return self._pipeline.looks_ahead

    def prefetch(self, lookups: Lookups) -> None:
        """Send the ids of a later batch now, and fetch its rows when the update before it is done.

        The same ``Lookups`` objects must be started in the order in which they were prefetched.
        """
        self._pipeline.prefetch(Lookups.of(lookups), self.training and torch.is_grad_enabled())

    def discard_prefetched(self) -> None:
        """Forget batches that were prefetched and will not be started; every rank alike."""
        self._pipeline.discard()

    def start(self, lookups: Lookups) -> Pending:
        """Begin to fetch rows, if they are not on their way; compute something else before ``wait``."""
        return Pending(
            self, self._pipeline.start(Lookups.of(lookups), self.training and torch.is_grad_enabled())
        )

    def forward(self, lookups: Lookups) -> Tensor:
        """Return pooled embeddings, B x T x D."""
        return self.start(lookups).wait()

    def begin_update(self, pending: Pending, gradient_RD: Tensor) -> None:
        """Send gradients and update rows, in another thread; called by ``backward``."""
        self._pipeline.update(pending.fetched, gradient_RD, self.ledger)

    def forget(self, pending: Pending) -> None:
        """Count a batch that was refused as not begun; called by its ``wait``."""
        self._pipeline.forget(pending.fetched)

    def finish(self) -> int:
        """Wait for the update that ``backward`` began; return how many rows of this rank it changed."""
        return self._pipeline.finish()

    def set_rate(self, rate: float) -> None:
        """Change the learning rate from the next update on; every rank alike."""
        self._pipeline.set_rate(rate)

    def synchronize(self) -> None:
        """Make copies of hot rows equal now, if they may differ; every rank alike, before anything reads tables."""
        self._pipeline.synchronize(self._exact[self._manner(False).plan.coded_ids], self.ledger)

    def probe_link(self) -> Link:
        """Measure the link to the other ranks; every rank alike, while nothing is on its way."""
        return self._pipeline.probe_link()

    def watch_updates(self, observer: Observer | None) -> None:
        """Let something see what gradients become on their way; None: nobody."""
        self._pipeline.observe(observer)

    def begin_journal(self) -> None:
        """Note rows from now on, so that ``undo`` can bring them back; not while a batch is prefetched."""
        self._pipeline.settle_for_journal()
        self.synchronize()
        self._pipeline.begin_journal()

    def undo(self) -> None:
        """Bring rows and step back to where the journal was begun; every rank alike."""
        self._pipeline.undo()

    def end_journal(self) -> None:
        """Note no more, and forget what was noted."""
        self._pipeline.end_journal()

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

    def close(self) -> None:
        """End the threads and leave the process groups. Optional: they do not keep the process alive."""
        self._pipeline.close()

    def _manner(self, updates: bool) -> Manner:
        """How a batch that begins now is looked up."""
        plan = self._exact[True] if self.policy is None else self.policy.plan_for(self.step)
        if self.policy is not None and len(plan.tables) != len(self.layout.tables):
            raise PlanError(
                f"embeddings: expected a plan for {len(self.layout.tables)} tables, got one for {len(plan.tables)}"
            )
        if not self.training:
            return Manner(self._exact[plan.coded_ids], updates, None)
        return Manner(plan if self.policy is None else self._hot.expand(plan), updates, self.ledger)

    def _make_again(self, other: ShardedEmbeddings, policy: Policy | None) -> None:
        kind: dict[str, Any] = {"optimizer": self.optimizer, "policy": policy, "dtype": self.weight_RD.dtype}
        ShardedEmbeddings.__init__(other, self.layout.tables, self.dim, **kind, **self._made_with)

    def _settle(self) -> None:
        self._pipeline.settle()

    def _settle_copies(self) -> None:
        self._pipeline.settle()
        if self._pipeline.copies_differ:
            raise PlanError(
                "embeddings: copies of hot rows differ between ranks; synchronize() on every rank before tables are read"
            )
