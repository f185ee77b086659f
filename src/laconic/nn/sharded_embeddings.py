"""Embedding tables spread over ranks, looked up and trained over the compressed exchange.

One step, as the two threads of a rank see it (``exchange`` has the parts)::

    main thread    bottom MLP | top MLP, their backward | dense gradients | bottom MLP of t + 1 ...
    rows thread    rows of t  | some rows of t + 1      | gradients of t, update, rows of t + 1 ...
    ids thread         ids of t + 1                     |     ids of t + 2 ...

Rows of the next step are fetched as soon as this one's update is done, while the dense gradients
are still on the wire; they are the updated ones. With ``look_ahead`` those that this step does not change have come before.

Shape legend: ``B`` samples, ``T`` tables, ``D`` dimensions, ``R`` rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch import Tensor

from laconic.cost.link import Link
from laconic.errors import ConfigError, PlanError
from laconic.exchange import Layout, Ledger, RowOptimizer, RowwiseAdagrad, Table
from laconic.exchange.exchange_plan import ExchangePlan, Policy
from laconic.exchange.id_exchange import Routed, exchange_ids
from laconic.exchange.link_probe import probe_link
from laconic.exchange.look_ahead import Early
from laconic.exchange.row_exchange import RowExchange
from laconic.exchange.tables.hot_copies import HotCopies
from laconic.exchange.tables.hot_rows import HotRows
from laconic.exchange.tables.hot_sync import HotSync
from laconic.exchange.tables.journal import Journal
from laconic.exchange.tables.row_initialization import initialize_rows
from laconic.exchange.tables.row_memory import allocate_rows
from laconic.exchange.tables.shard_views import ShardViews
from laconic.exchange.tables.warm_copies import WarmCopies
from laconic.exchange.tables.warm_rows import WarmRows
from laconic.exchange.update_error import Watch
from laconic.exchange.worker import RefusedBatchError, Worker
from laconic.exchange.world import Alone, Joined, World
from laconic.lookups import Lookups
from laconic.nn.coming import Coming, check_order
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
        every ``hot_every`` steps (``HotSync`` says how). ``warm``: ascending ids of rows of cold tables that stay in memory.
        ``cold_folder``: where this rank keeps the other rows of cold tables, in files that are gone when it ends. ``look_ahead``: rows of the next
        batch that the one under way does not change travel when it is prefetched, if they travel exactly; prefetch before you compute.
        """
        super().__init__()
        check_settings(dim, dtype, policy, hot_every)
        if world is None:
            world = Joined() if dist.is_initialized() and dist.get_world_size() > 1 else Alone()
        ranks = world.ranks
        self.layout = Layout(tuple(tables), ranks, world.rank)
        self._hot = HotRows(tables, hot)
        self._hot_every = hot_every if self._hot.ids and ranks > 1 else 1
        alone = len(self._hot.ids) if self._hot_every > 1 else 0
        warm_rows = WarmRows(tables, warm, self._hot)
        self._parts = Layout(self._hot.parts, ranks, world.rank, alone, warm_rows.in_file(self.layout))
        self.dim = dim
        self._optimizer = optimizer or RowwiseAdagrad()
        places = {"hot": hot, "hot_every": hot_every, "warm": warm, "cold_folder": cold_folder}
        self._made_with: dict[str, Any] = {"world": world, "look_ahead": look_ahead, **places}
        self.policy = policy
        self.ledger = Ledger(tuple(part.name for part in self._hot.parts))
        self._make_rows(dtype, None if cold_folder is None else Path(cold_folder), seed)
        self.step = 0
        """Training steps begun; policies and dither count by it."""
        self._journal_step = 0
        self._turn = 0  # of the exchange, evaluation included: ranks compare it
        parts = len(self._hot.parts)
        self._exact = {coded: ExchangePlan.exact(parts, coded_ids=coded) for coded in (True, False)}
        self._placed = self._hot.digest + warm_rows.digest
        kind = (self.layout.tables, dim, dtype, self._optimizer, self._placed, hot_every, look_ahead)
        self._digest = int.from_bytes(blake2b(repr(kind).encode(), digest_size=8).digest(), "little") >> 1
        self._ids_wire = world.wire("exchange of ids")
        # before messages whose length depends on the tables: ranks with other tables all raise here
        nothing = np.zeros((ranks, 0), np.int64)
        self._ids_wire.announce(0, self._digest, 0, nothing, nothing)
        rows_wire = world.wire("exchange of rows")
        self._rows = RowExchange(
            self._parts, self._hot, self.weight_RD, self.state_R, self._optimizer, rows_wire
        )
        self._sync: HotSync | None = None
        if self._hot_every > 1:
            rows = (self.weight_RD, self.state_R, self._optimizer)
            self._sync = HotSync(self._hot, self._parts, *rows, rows_wire, self._digest)
            self._rows.before_update = self._sync.note
        self._ids_worker, self._rows_worker = Worker("laconic-ids"), Worker("laconic-rows")
        self.looks_ahead = look_ahead and ranks > 1
        self._prefetched: list[Coming] = []
        self._current: Future[Routed] | None = None  # of the training batch that was fetched last
        self._fetched: tuple[Lookups, Pending] | None = None
        self._under_way = 0  # batches whose update is still to come
        self._update: Future[int] | None = None
        self.anchor = torch.zeros(0, requires_grad=True)

    def _make_rows(self, dtype: torch.dtype, folder: Path | None, seed: int) -> None:
        memory, file = self._parts.memory_rows, self._parts.file_rows
        if file and folder is None:
            raise ConfigError("embeddings: cold tables need cold_folder, a folder for files of their rows")
        # neither parameters nor buffers: DDP would make all ranks' shards equal, and the exchange holds on to them
        self.weight_RD = allocate_rows(memory, file, (self.dim,), dtype, folder)
        has_state = self._optimizer.has_state
        self.state_R = allocate_rows(memory, file, (), dtype, folder) if has_state else None
        state = None if self.state_R is None else self.state_R.numpy()
        self._copies = HotCopies(self._hot, self._parts, self.weight_RD.numpy(), state)
        self._views = ShardViews(self.layout, self._parts, self._hot, self.weight_RD, self.state_R)
        self._warm = WarmCopies(self._parts, self.weight_RD.numpy(), state)
        initialize_rows(self.weight_RD, self._parts, self._hot, seed)
        self._warm.take(*range(len(self.layout.tables)))

    def prefetch(self, lookups: Lookups) -> None:
        """Send the ids of a later batch now, and fetch its rows when the update before it is done.

        The same ``Lookups`` objects must be started in the order in which they were prefetched.
        """
        routed, current = self._route(lookups), self._current
        early: Future[Early | None] | None = None
        training = self.training and torch.is_grad_enabled()
        next_one = not self._prefetched and self._fetched is None and self._under_way == 1
        if self.looks_ahead and training and next_one and current is not None:
            step, plan, ledger = self.step, self._plan(self.step), self.ledger

            def fetch_early() -> Early | None:
                if isinstance(current.exception(), RefusedBatchError):
                    return None  # what it would change is not known, and nothing
                return self._rows.forward_early(routed.result(), current.result(), plan, step, ledger)

            early = self._rows_worker.submit(fetch_early)
        self._prefetched.append(Coming(lookups, routed, early))

    def discard_prefetched(self) -> None:
        """Forget batches that were prefetched and will not be started; every rank alike."""
        self._prefetched.clear()
        if self._fetched is not None:
            self._fetched = None
            self.step -= 1
            self._under_way -= 1

    def start(self, lookups: Lookups) -> Pending:
        """Begin to fetch rows, if they are not on their way; compute something else before ``wait``."""
        if self._fetched is None:
            return self._fetch(self._take_prefetched(lookups))
        expected, pending = self._fetched
        check_order(expected, lookups)
        if not (self.training and torch.is_grad_enabled()):
            raise PlanError(
                "embeddings: rows of this batch were prefetched for training; discard_prefetched() first"
            )
        self._fetched = None
        return pending

    def _fetch(self, coming: Coming) -> Pending:
        step, plan, routed = self.step, self._plan(self.step), coming.routed
        training = self.training and torch.is_grad_enabled()
        if training:
            self.step += 1
            self._under_way += 1
            self._current = routed
        ledger = self.ledger if self.training else None

        def fetch() -> Tensor:
            early = coming.early.result() if coming.early is not None else None
            return self._rows.forward(routed.result(), plan, step, ledger, early)

        received = self._rows_worker.submit(fetch)
        return Pending(self, routed, received, plan, step, training)

    def forget(self, pending: Pending) -> None:
        """Count a batch that was refused as not begun; called by its ``wait``."""
        self._under_way -= 1
        if self.step == pending.step + 1:
            self.step = pending.step

    def forward(self, lookups: Lookups) -> Tensor:
        """Return pooled embeddings, B x T x D."""
        return self.start(lookups).wait()

    def finish(self) -> int:
        """Wait for the update that ``backward`` began; return how many rows of this rank it changed."""
        update, self._update = self._update, None
        return 0 if update is None else update.result()

    def set_rate(self, rate: float) -> None:
        """Change the learning rate from the next update on; every rank alike."""
        self._settle()
        self._optimizer = self._rows.optimizer = replace(self._optimizer, rate=rate)
        if self._sync is not None:
            self._sync.exchange.optimizer = self._optimizer

    def synchronize(self) -> None:
        """Make copies of hot rows equal now, if they may differ; every rank alike, before anything reads tables."""
        self._settle()
        sync, turn, step = self._sync, self._turn, self.step
        if sync is not None and sync.steps:
            plan = self._exact[self._plan(step).coded_ids]
            self._rows_worker.submit(lambda: sync.synchronize(turn, step, plan, self.ledger)).result()

    def _settle_copies(self) -> None:
        self._settle()
        if self._sync is not None and self._sync.steps:
            raise PlanError(
                "embeddings: copies of hot rows differ between ranks; synchronize() on every rank before tables are read"
            )

    def probe_link(self) -> Link:
        """Measure the link to the other ranks; every rank alike, while nothing is on its way."""
        return self._rows_worker.submit(lambda: probe_link(self._rows.wire)).result()

    def watch_updates(self, watch: Watch | None) -> None:
        """Let something see what gradients become on their way; None: nobody."""
        self._settle()
        self._rows.watch = watch

    def begin_journal(self) -> None:
        """Note rows from now on, so that ``undo`` can bring them back; not while a batch is prefetched."""
        self._settle_for_journal()
        self.synchronize()
        if self._sync is not None:
            self._sync.save()
        state = None if self.state_R is None else self.state_R.numpy()
        self._rows.journal = Journal(self.weight_RD.numpy(), state)
        self._journal_step = self.step

    def undo(self) -> None:
        """Bring rows and step back to where the journal was begun; every rank alike."""
        self._settle_for_journal()
        assert self._rows.journal is not None, "begin_journal comes first"
        self._rows.journal.undo()
        if self._sync is not None:
            self._sync.go_back()
        self.step = self._journal_step

    def end_journal(self) -> None:
        """Note no more, and forget what was noted."""
        self._settle()
        self._rows.journal = None

    def _settle_for_journal(self) -> None:
        self._settle()
        if self._fetched is not None or self._prefetched:
            raise PlanError("embeddings: a batch was prefetched; start it, or discard_prefetched(), first")

    def close(self) -> None:
        """End the threads and leave the process groups. Optional: they do not keep the process alive."""
        for worker, wire in ((self._ids_worker, self._ids_wire), (self._rows_worker, self._rows.wire)):
            worker.close()
            wire.close()

    def _make_again(self, other: ShardedEmbeddings, policy: Policy | None) -> None:
        kind: dict[str, Any] = {"optimizer": self._optimizer, "policy": policy, "dtype": self.weight_RD.dtype}
        ShardedEmbeddings.__init__(other, self.layout.tables, self.dim, **kind, **self._made_with)

    def _settle(self) -> None:
        """Wait until rows are as the last ``backward`` leaves them."""
        if self._update is not None:
            self._update.result()

    def table_shard(self, name: str) -> tuple[range, Tensor, Tensor | None]:
        """Ids of a table's rows on this rank, the rows (a view), and their optimizer state.

        What is written to hot ones comes to nobody; ``hot_rows`` has the copies. Of a cold table, ``take_shard`` after writing.
        """
        self._settle_copies()
        self._copies.write_back()
        self._warm.write_back(self._views.number(name))
        return self._views.table_shard(name)

    def take_shard(self, name: str) -> None:
        """Let lookups find what was written to the view that ``table_shard`` returned."""
        self._warm.take(self._views.number(name))

    def hot_rows(self, name: str) -> tuple[NDArray[np.int64], Tensor, Tensor | None]:
        """Ids of a table's hot rows, this rank's copies (a view), and their optimizer state."""
        self._settle()
        return self._views.hot_rows(name)

    def _route(self, lookups: Lookups) -> Future[Routed]:
        turn, self._turn = self._turn, self._turn + 1
        coded, ledger = self._plan(self.step).coded_ids, self.ledger if self.training else None
        lookups = lookups.copy()  # read later, in another thread and by backward; a loader may reuse it

        def route() -> Routed:
            return exchange_ids(
                lookups,
                turn,
                coded=coded,
                layout=self._parts,
                hot=self._hot,
                digest=self._digest ^ int(coded),
                wire=self._ids_wire,
                ledger=ledger,
            )

        return self._ids_worker.submit(route)

    def _take_prefetched(self, lookups: Lookups) -> Coming:
        if not self._prefetched:
            return Coming(lookups, self._route(lookups))
        check_order(self._prefetched[0].lookups, lookups)
        return self._prefetched.pop(0)

    def _plan(self, step: int) -> ExchangePlan:
        """Return the plan of all parts."""
        if self.policy is None:
            return self._exact[True]
        plan = self.policy.plan_for(step)
        if len(plan.tables) != len(self.layout.tables):
            raise PlanError(
                f"embeddings: expected a plan for {len(self.layout.tables)} tables, got one for {len(plan.tables)}"
            )
        return self._hot.expand(plan) if self.training else self._exact[plan.coded_ids]

    def begin_update(self, pending: Pending, gradient_RD: Tensor) -> None:
        """Send gradients and update rows, in another thread; called by ``backward``."""
        ledger = self.ledger

        def update() -> int:
            routed: Routed = pending.routed.result()
            changed = self._rows.backward(routed, pending.plan, pending.step, ledger, gradient_RD)
            if self._sync is not None and (pending.step + 1) % self._hot_every == 0:
                self._sync.synchronize(routed.turn, pending.step, pending.plan, ledger)
            return changed

        self._update = self._rows_worker.submit(update)
        self._under_way -= 1
        if self._prefetched and self._fetched is None and not self._under_way:
            coming = self._prefetched.pop(0)
            with torch.enable_grad():  # backward runs without
                self._fetched = (coming.lookups, self._fetch(coming))
