"""One rank's rows of one dimension: its shards, its exchange with the others, and what it counts.

``nn.ShardedEmbeddings`` has one engine for each dimension of its tables. Training and adaptation,
which take steps back, try other plans and save rows, talk to the engine itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from laconic.cost.link import Link
from laconic.errors import PlanError
from laconic.exchange.exchange_plan import ExchangePlan, Policy
from laconic.exchange.ledger import Ledger
from laconic.exchange.local import LocalRanks
from laconic.exchange.noise import RoundingCost
from laconic.exchange.pipeline import Manner, Pipeline, Purpose
from laconic.exchange.rank import (
    Rank,
    RowSettings,
    bounds_state,
    check_state,
    load_bounds,
    load_state,
    rounding_cost,
    state_of,
    states_for,
)
from laconic.exchange.ranks.stages import finish, in_step
from laconic.exchange.ranks.world import World
from laconic.exchange.sent_rows import Observer
from laconic.exchange.tables.layout import Layout
from laconic.exchange.tables.shards import TableShards
from laconic.exchange.tables.table import Table

__all__ = ["RowEngine", "check_plan"]


_PATIENCE_S = 600.0  # for a rank whose tables are larger, while it makes their first rows


class RowEngine:
    """Tables of one dimension over all ranks; every rank calls it alike."""

    def __init__(
        self, tables: Sequence[Table], policy: Policy, settings: RowSettings, worlds: Sequence[World]
    ) -> None:
        """``worlds``: as each rank of this process sees it; one of a job, or all of them."""
        self.dim, self.settings, self._policy = tables[0].dim, settings, policy
        self.layout = Layout(tuple(tables), worlds[0].ranks, worlds[0].rank)
        self.ranks = tuple(Rank.of(world, tuple(tables), settings) for world in worlds)
        """Those of this process: one, or all."""
        finish(in_step([rank.ids.meet() for rank in self.ranks]))
        for rank in self.ranks:
            rank.shards.initialize(settings.seed)
        finish(in_step([rank.ids.meet(_PATIENCE_S) for rank in self.ranks]))
        self._shards = self.ranks[0].shards
        parts = self._shards.layout.tables
        self._ledger = Ledger(tuple(part.name for part in parts))
        self._exact = {coded: ExchangePlan.exact(len(parts), coded_ids=coded) for coded in (True, False)}
        self.pipeline = Pipeline(
            LocalRanks(self.ranks),
            self._manner,
            hot_every=settings.placement.hot_every,
            look_ahead=settings.placement.look_ahead,
            fused=settings.fused,
        )

    @property
    def policy(self) -> Policy:
        """Who says how rows and gradients travel."""
        return self._policy

    @property
    def ledger(self) -> Ledger:
        """What traveled in training."""
        return self._ledger

    @property
    def step(self) -> int:
        """Training steps begun."""
        return self.pipeline.step

    @property
    def weight_RD(self) -> Tensor:
        """Rows of this rank."""
        return self._shards.weight_RD

    @property
    def state_R(self) -> Tensor | None:
        """Optimizer state of these rows, if there is any."""
        return self._shards.state_R

    @contextmanager
    def under(self, policy: Policy, ledger: Ledger) -> Iterator[None]:
        """Let rows and gradients travel as another policy says, counted in another ledger."""
        before = self._policy, self._ledger
        self._policy, self._ledger = policy, ledger
        try:
            yield
        finally:
            self._policy, self._ledger = before

    def synchronize(self) -> None:
        """Make copies of hot rows equal now, if they may differ, before anything reads tables."""
        coded = self._manner(Purpose.EVALUATE).plan.coded_ids
        self.pipeline.synchronize(self._exact[coded], self._ledger)

    def probe_link(self) -> Link:
        """Measure the link to the other ranks, while nothing is on its way."""
        return self.pipeline.probe_link()

    def observe(self, observer: Observer | None) -> None:
        """Let something see what gradients become on their way; None: nobody."""
        self.pipeline.observe(observer)

    def begin_journal(self) -> None:
        """Note rows from now on, so that ``undo`` can bring them back.

        ``PlanError`` while a batch is prefetched.
        """
        self.pipeline.settle_for_journal()
        self.synchronize()
        self.pipeline.begin_journal()

    def undo(self) -> None:
        """Bring rows and step back to where the journal was begun."""
        self.pipeline.undo()

    def end_journal(self) -> None:
        """Note no more, and forget what was noted."""
        self.pipeline.end_journal()

    def shards(self) -> tuple[TableShards, ...]:
        """Rows of each rank of this process, as the last update left them.

        ``PlanError`` where copies of hot rows differ between ranks.
        """
        self._settle_copies()
        return tuple(rank.shards for rank in self.ranks)

    def table_shard(self, name: str) -> tuple[range, Tensor, Tensor | None]:
        """Ids of a table's rows on this rank, the rows (a view), and their optimizer state.

        What is written to hot ones comes to nobody; ``hot_rows`` has the copies. After writing to a
        cold table call ``take_shard``. Where all ranks are in this process, these are copies of all
        rows; ``shards`` has the views.
        """
        pieces = [shards.view(name) for shards in self.shards()]
        if len(pieces) == 1:
            return pieces[0]
        rows = next(table.rows for table in self.layout.tables if table.name == name)
        weight = self.weight_RD.new_empty(rows, self.dim)
        state = None if self.state_R is None else self.state_R.new_empty(rows)
        for ids, weight_RD, state_R in pieces:
            weight[ids.start : ids.stop : ids.step] = weight_RD
            if state is not None and state_R is not None:
                state[ids.start : ids.stop : ids.step] = state_R
        return range(rows), weight, state

    def table_noise(self, name: str) -> Tensor:
        """Variance that rounding has put into the rows that ``table_shard`` returned before."""
        pieces = [rank.shards.noise_view(name) for rank in self.ranks]
        if len(pieces) == 1:
            return pieces[0]
        noise = pieces[0].new_empty(next(table.rows for table in self.layout.tables if table.name == name))
        for rank, piece in zip(self.ranks, pieces, strict=True):
            ids, _, _ = rank.shards.view(name)
            noise[ids.start : ids.stop : ids.step] = piece
        return noise

    def rounding_cost(self) -> RoundingCost:
        """Return what rounding cost a step when all ranks last added it up (``agrees_after``)."""
        self.pipeline.settle()
        plan = self._policy.plan_for(max(self.pipeline.begun - 1, 0))
        return rounding_cost(self.ranks[0], self._shards.hot.expand(plan))

    def take_shard(self, name: str) -> None:
        """Let lookups find what was written to the view that ``table_shard`` returned."""
        self._shards.take(name)

    def hot_rows(self, name: str) -> tuple[NDArray[np.int64], Tensor, Tensor | None]:
        """Ids of a table's hot rows, this rank's copies (a view), and their optimizer state."""
        self.pipeline.settle()
        return self._shards.hot_rows(name)

    def state(self) -> dict[str, Any]:
        """Return rows, optimizer state and step of this rank, or of all ranks of this process.

        A batch that is only prefetched does not count as begun.
        """
        self._settle_copies()
        return state_of(self.ranks, self.layout.tables, self.pipeline.begun)

    def load(self, state: dict[str, Any]) -> None:
        """Take back what ``state`` returned on this rank of as many.

        Gradients that wait for a step stay, as torch keeps those of parameters. ``PlanError`` while
        a batch is prefetched, whose rows may be on their way.
        """
        states = states_for(self.layout, len(self.ranks), state)
        for rank, saved in zip(self.ranks, states, strict=True):
            check_state(rank, self.layout, saved)
        self.pipeline.settle_for_journal()
        self.pipeline.go_to(states[0]["step"])
        for rank, saved in zip(self.ranks, states, strict=True):
            load_state(rank, saved)

    def bounds_state(self) -> list[dict[str, Any]]:
        """Return what the bounds of each rank of this process follow from."""
        return [bounds_state(rank) for rank in self.ranks]

    def load_bounds(self, states: Sequence[Mapping[str, Any]] | None, *, same_ranks: bool) -> None:
        """Take back what ``bounds_state`` returned on this rank of as many, or on another's."""
        same = same_ranks and states is not None and len(states) == len(self.ranks)
        for k, rank in enumerate(self.ranks):
            load_bounds(rank, None if not states else states[k if same else 0], same_ranks=same)

    def _manner(self, purpose: Purpose) -> Manner:
        """How a batch that begins now is looked up."""
        plan = self._policy.plan_for(self.pipeline.step)
        check_plan(plan, len(self.layout.tables))
        if purpose is Purpose.EVALUATE:
            return Manner(self._exact[plan.coded_ids], purpose, None)
        return Manner(self._shards.hot.expand(plan), purpose, self._ledger)

    def _settle_copies(self) -> None:
        self.pipeline.settle()
        if self.pipeline.copies_differ:
            raise PlanError(
                "embeddings: copies of hot rows differ between ranks; synchronize() on every rank before "
                "tables are read"
            )


def check_plan(plan: ExchangePlan, tables: int) -> None:
    """Raise ``PlanError`` if a plan is for more or fewer tables."""
    if len(plan.tables) != tables:
        raise PlanError(f"embeddings: expected a plan for {tables} tables, got one for {len(plan.tables)}")
