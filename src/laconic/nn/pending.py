"""Rows on their way: what ``ShardedEmbeddings.start`` returns, and what autograd goes back through.

Shape legend: ``B`` samples, ``T`` tables, ``D`` dimensions, ``S`` the dimensions of all tables
together, ``R`` received rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from laconic.errors import PlanError
from laconic.exchange.engine import RowEngine
from laconic.exchange.local import LocalBatch
from laconic.exchange.pipeline import Fetched
from laconic.exchange.ranks.worker import RefusedBatchError
from laconic.exchange.tables.table import Table
from laconic.nn.row_optimizer import EmbeddingOptimizer

__all__ = ["JoinedPending", "Pending"]


class Pending:
    """Rows on their way, of tables that have one dimension."""

    def __init__(self, engine: RowEngine, fetched: Fetched, optimizer: EmbeddingOptimizer) -> None:
        self._engine, self._fetched, self._optimizer = engine, fetched, optimizer
        self._waited = self._forgotten = self._updated = False
        self._batch: LocalBatch | None = None

    @property
    def step(self) -> int:
        """Training steps that were begun before."""
        return self._fetched.step

    @property
    def tables(self) -> Sequence[Table]:
        """Tables whose rows they are."""
        return self._engine.layout.tables

    @property
    def global_samples(self) -> int:
        """Samples of all ranks in this batch; divide a sum of losses by it."""
        return self.batch.global_samples

    @property
    def batch(self) -> LocalBatch:
        """The routed batch; waits for its ids."""
        if self._batch is None:
            try:
                self._batch = self._engine.pipeline.batch_of(self._fetched)
            except RefusedBatchError:
                self.forget()
                raise
        return self._batch

    def forget(self) -> None:
        """Count the batch as not begun, because it was refused."""
        if self._fetched.manner.updates and not self._forgotten:
            self._forgotten = True
            self._engine.pipeline.forget(self._fetched)

    def wait(self) -> Tensor:
        """Return pooled embeddings, B x T x D; ``backward`` through them updates the tables."""
        if self._waited:
            raise PlanError("embeddings: rows were waited for before; keep what wait() returned")
        batch = self.batch  # raises if it was refused, and has no rows
        received_RD = self._fetched.received.result()
        self._waited = True
        if self._fetched.manner.updates:
            anchor, weights = self._optimizer.anchor, batch.bags.weights
            return _Pool.apply(anchor, self, received_RD, weights)  # type: ignore[no-any-return, no-untyped-call]
        return self._pool(received_RD)

    def _pool(self, received_RD: Tensor) -> Tensor:
        return self.batch.bags.pool(received_RD, self.batch.samples, len(self.tables))

    def _update(self, gradient_BTD: Tensor, rows: int) -> None:
        """Send gradients and update rows, in another thread."""
        if self._updated:
            raise PlanError(
                "embeddings: expected one backward for a batch, got another, and its rows have changed since; "
                "call backward once, on the sum of all losses"
            )
        # a bad rate raises here, and not in the thread of rows, which would not go on
        lr = self._optimizer.lr if self._optimizer.fused else 0.0
        self._updated = True
        gradient_RD = self.batch.bags.unpool(gradient_BTD, rows)
        self._engine.pipeline.update(self._fetched, gradient_RD, lr)


class JoinedPending:
    """Rows on their way of tables that have several dimensions, a group each."""

    def __init__(self, groups: Sequence[Pending], tables: Sequence[Table]) -> None:
        self._groups, self._tables = groups, tables

    @property
    def step(self) -> int:
        """Training steps that were begun before."""
        return self._groups[0].step

    @property
    def global_samples(self) -> int:
        """Samples of all ranks in this batch; divide a sum of losses by it."""
        return self._routed()[0].global_samples

    def wait(self) -> Tensor:
        """Return pooled embeddings, B x S; ``backward`` through them updates the tables."""
        self._routed()
        pooled = {
            table.name: rows_BD
            for group in self._groups
            for table, rows_BD in zip(group.tables, group.wait().unbind(1), strict=True)
        }
        return torch.cat([pooled[table.name] for table in self._tables], dim=1)

    def _routed(self) -> list[LocalBatch]:
        """Batches of all groups; one that a group refuses is refused by all."""
        refused, batches = None, []
        for group in self._groups:
            try:
                batches.append(group.batch)
            except RefusedBatchError as error:
                refused = refused or error
        if refused is not None:
            for group in self._groups:
                group.forget()
            raise refused
        return batches


class _Pool(torch.autograd.Function):
    """Pooling whose backward hands gradients to the exchange, and returns before they are sent."""

    @staticmethod
    def forward(
        ctx: Any, anchor: Tensor, pending: Pending, received_RD: Tensor, weights: Tensor | None
    ) -> Tensor:
        """``anchor`` wants a gradient: autograd visits a function only if an input does."""
        ctx.pending, ctx.rows, ctx.anchor = pending, len(received_RD), anchor
        ctx.received = received_RD if weights is not None and weights.requires_grad else None
        return pending._pool(received_RD)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        pending: Pending = ctx.pending
        of_weights = None
        if ctx.received is not None:
            of_weights = pending.batch.bags.gradient_of_weights(gradients[0], ctx.received)
        pending._update(gradients[0], ctx.rows)
        return torch.zeros_like(ctx.anchor), None, None, of_weights
