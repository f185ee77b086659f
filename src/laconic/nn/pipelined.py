"""Embeddings whose rows are on their way while others compute: what those of one rank and of many have in common.

``exchange.pipeline`` shows what the threads of a process do in one step. Shape legend: ``B`` samples, ``T`` tables, ``D``
dimensions, ``R`` rows.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from laconic.errors import ConfigError, PlanError
from laconic.exchange import Layout, Ledger, RowOptimizer
from laconic.exchange.exchange_plan import ExchangePlan, Policy
from laconic.exchange.local import LocalRanks
from laconic.exchange.pipeline import Manner, Pipeline
from laconic.exchange.rank import Placed, Rank
from laconic.exchange.sent_rows import Observer
from laconic.exchange.stages import finish, in_step
from laconic.exchange.tables.shards import TableShards
from laconic.exchange.world import World
from laconic.lookups import Lookups
from laconic.nn.pending import Pending

__all__ = ["PipelinedEmbeddings"]


class PipelinedEmbeddings(nn.Module):
    """Tables of one dimension, of which the ranks of this process have a part, or all.

    In training mode rows and gradients travel as the policy says, and ``backward`` of the loss
    updates the tables: there is no gradient of a table, and nothing for a dense optimizer to do.
    In evaluation mode rows travel exactly.
    """

    def __init__(self, placed: Placed, policy: Policy | None, seed: int, worlds: Sequence[World]) -> None:
        """``worlds``: as each rank of this process sees it; one of a job, or all of them."""
        super().__init__()
        self.dim, self.policy = placed.dim, policy
        self._placed, self._worlds = placed, worlds
        self.layout = Layout(placed.tables, worlds[0].ranks, worlds[0].rank)
        ranks = [Rank.of(world, placed) for world in worlds]
        finish(in_step([rank.ids.meet() for rank in ranks]))
        TableShards.initialize([rank.shards for rank in ranks], seed)
        parts = ranks[0].shards.layout.tables
        self._ranks = tuple(ranks)
        self.ledger = Ledger(tuple(part.name for part in parts))
        """What was sent; of several ranks in one process, by all of them together."""
        self._hot = ranks[0].shards.hot
        self._exact = {coded: ExchangePlan.exact(len(parts), coded_ids=coded) for coded in (True, False)}
        self._pipeline = Pipeline(
            LocalRanks(ranks), self._manner, hot_every=placed.hot_every, look_ahead=placed.look_ahead
        )
        self.anchor = torch.zeros(0, requires_grad=True)

    @property
    def optimizer(self) -> RowOptimizer:
        """What updates rows, with the learning rate that it has now."""
        return self._ranks[0].shards.optimizer

    @optimizer.setter
    def optimizer(self, optimizer: object) -> None:
        raise ConfigError(
            f"embeddings.optimizer: rows keep the optimizer that they were made with, got {optimizer!r}; "
            "set_rate(rate) changes its learning rate"
        )

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

    def observe(self, observer: Observer | None) -> None:
        """Let something see what rows and gradients become on their way; None: nobody."""
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

    def shards(self) -> tuple[TableShards, ...]:
        """Rows of each rank of this process, as the last update left them; copies of hot rows are equal."""
        self._settle_copies()
        return tuple(rank.shards for rank in self._ranks)

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

    def _settle(self) -> None:
        self._pipeline.settle()

    def _settle_copies(self) -> None:
        self._pipeline.settle()
        if self._pipeline.copies_differ:
            raise PlanError(
                "embeddings: copies of hot rows differ between ranks; synchronize() on every rank before tables are read"
            )
