"""Embeddings that one process trains as several ranks would; ``exchange.rehearsal`` has the exchange.

Used like ``ShardedEmbeddings``, but with whole batches, and nothing overlaps.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from laconic.errors import ConfigError, PlanError
from laconic.exchange import Layout, Ledger, RowOptimizer, RowwiseAdagrad, Table
from laconic.exchange.errors_seen import Observer
from laconic.exchange.exchange_plan import ExchangePlan, Policy, expect_policy
from laconic.exchange.pipeline import Fetched, Manner
from laconic.exchange.rehearsal import Rehearsal, RehearsedBatch
from laconic.exchange.tables.copies import HotRows
from laconic.exchange.tables.first_rows import initialize_rows
from laconic.exchange.tables.shards import Journal
from laconic.lookups import Lookups
from laconic.nn.pending import Pending

__all__ = ["RehearsedEmbeddings"]

Value = TypeVar("Value")


class RehearsedEmbeddings(nn.Module):
    """All ranks of a rehearsal. Bytes in its ledger are those of all ranks together."""

    looks_ahead = False
    """Whether rows travel a step early: what they are is the same, and here nothing travels."""

    def __init__(
        self,
        tables: Sequence[Table],
        dim: int,
        ranks: int,
        *,
        optimizer: RowOptimizer | None = None,
        policy: Policy | None = None,
        seed: int = 0,
        hot: Mapping[str, Any] | None = None,
    ) -> None:
        """``hot``: ascending ids of rows, by table, of which every rank has a copy."""
        super().__init__()
        if ranks < 1:
            raise ConfigError(f"rehearsal.ranks: expected at least 1, got {ranks!r}")
        expect_policy("rehearsal.policy", policy)
        self.dim, self.ranks, self.policy = dim, ranks, policy
        self.exchange = Rehearsal(tuple(tables), ranks, dim, optimizer or RowwiseAdagrad(), hot)
        self.layout = Layout(tuple(tables), ranks, 0)
        initialize_rows([(self.exchange.weight_RD, self.exchange.whole)], HotRows(tables), seed)
        self.ledger = Ledger(tuple(part.name for part in self.exchange.hot.parts))
        self.step = 0
        """Training steps begun."""
        self._journal_step = 0
        self._exact = ExchangePlan.exact(len(self.exchange.hot.parts))
        self.anchor = torch.zeros(0, requires_grad=True)
        self.on_gradient: Callable[[RehearsedBatch, Tensor], None] | None = None
        """Sees every batch and its gradients before they travel."""

    def prefetch(self, lookups: Lookups) -> None:
        """Do nothing: there is nobody to send ids to."""

    def discard_prefetched(self) -> None:
        """Do nothing, as ``prefetch``."""

    def start(self, lookups: Lookups) -> Pending:
        """Fetch rows as the plan of the step says; exactly in evaluation mode."""
        training = self.training and torch.is_grad_enabled()
        step, ledger = self.step, self.ledger if self.training else None
        plan = self._plan(step)
        batch: Any = self.exchange.route(lookups, coded=plan.coded_ids, ledger=ledger, step=step)
        received = self.exchange.forward(batch, plan, step, ledger)
        if training:
            self.step += 1
        return Pending(
            self, Fetched(lookups, _done(batch), _done(received), Manner(plan, training, ledger), step)
        )

    def forward(self, lookups: Lookups) -> Tensor:
        """Return pooled embeddings, B x T x D."""
        return self.start(lookups).wait()

    def synchronize(self) -> None:
        """Do nothing: there is one of each row."""

    def finish(self) -> int:
        """Return at once: ``backward`` has done the update."""
        return 0

    def set_rate(self, rate: float) -> None:
        """Change the learning rate from the next update on."""
        self.exchange.optimizer = replace(self.exchange.optimizer, lr=rate)

    def table_shard(self, name: str) -> tuple[range, Tensor, Tensor | None]:
        """Ids of a table's rows, the rows (a view), and their optimizer state: here all of them."""
        names = [table.name for table in self.layout.tables]
        if name not in names:
            raise ConfigError(f"embeddings: no table {name!r} (known: {', '.join(names)})")
        t, exchange = names.index(name), self.exchange
        rows = slice(int(exchange.whole.base_T[t]), int(exchange.whole.base_T[t + 1]))
        state = None if exchange.state_R is None else exchange.state_R[rows]
        return range(self.layout.tables[t].rows), exchange.weight_RD[rows], state

    def watch_updates(self, watch: Observer | None) -> None:
        """Let something see what gradients become on their way; None: nobody."""
        self.exchange.watch = watch

    def begin_journal(self) -> None:
        """Note rows from now on, so that ``undo`` can bring them back."""
        exchange = self.exchange
        state = None if exchange.state_R is None else exchange.state_R.numpy()
        exchange.journal = Journal(exchange.weight_RD.numpy(), state)
        self._journal_step = self.step

    def undo(self) -> None:
        """Bring rows and step back to where the journal was begun."""
        assert self.exchange.journal is not None, "begin_journal comes first"
        self.exchange.journal.undo()
        self.step = self._journal_step

    def end_journal(self) -> None:
        """Note no more, and forget what was noted."""
        self.exchange.journal = None

    def forget(self, pending: Pending) -> None:
        """Do nothing: what is refused is refused before it is counted."""

    def close(self) -> None:
        """Do nothing: there are no threads."""

    def _plan(self, step: int) -> ExchangePlan:
        if self.policy is None or not self.training:
            return self._exact
        plan = self.policy.plan_for(step)
        if len(plan.tables) != len(self.layout.tables):
            raise PlanError(
                f"rehearsal: expected a plan for {len(self.layout.tables)} tables, got one for {len(plan.tables)}"
            )
        return self.exchange.hot.expand(plan)

    def begin_update(self, pending: Pending, gradient_RD: Tensor) -> None:
        """Update the rows of a batch; called by ``backward``."""
        batch: Any = pending.fetched.routed.result()
        if self.on_gradient is not None:
            self.on_gradient(batch, gradient_RD)
        self.exchange.backward(batch, pending.fetched.manner.plan, pending.step, self.ledger, gradient_RD)


def _done(value: Value) -> Future[Value]:
    future: Future[Value] = Future()
    future.set_result(value)
    return future
