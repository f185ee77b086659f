"""The ranks of this process: one, or all of a ``LocalWorld``, which one thread takes along in step.

Where all ranks are here, a batch is that of all of them together. Rank r of N gets samples
``r * B // N`` to ``(r + 1) * B // N``, as the data layer divides them. It does what it would do in
a process of its own, with messages that are handed over in memory. So rows, gradients and bytes are
those of N processes, by construction. What ranks received lies in one matrix, rank after rank;
gradients lie in the same order. Shape legend: ``N`` ranks of this process, ``R`` rows that they
received, ``D`` dimensions, ``T`` tables, ``B`` samples.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from laconic.errors import ConfigError
from laconic.exchange.bags import Bags
from laconic.exchange.exchange_plan import ExchangePlan
from laconic.exchange.ids import MaybeLookups, Routed
from laconic.exchange.ledger import Ledger
from laconic.exchange.prefetched import PrefetchedRows
from laconic.exchange.rank import Rank, bounds_state, load_bounds
from laconic.exchange.ranks.stages import Stages, in_step
from laconic.exchange.ranks.worker import RefusedBatchError
from laconic.exchange.routing import checked_lookups
from laconic.exchange.sent_blocks import Turn
from laconic.exchange.sent_rows import Observer
from laconic.lookups import Lookups

__all__ = ["LocalBatch", "LocalRanks", "LocalTurn"]

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True, eq=False)
class LocalBatch:
    """A batch as the ranks of this process have routed it."""

    ranks: tuple[Routed, ...]
    bags: Bags
    """How the rows that all of them received become bags of all samples."""

    @property
    def samples(self) -> int:
        """Samples of the ranks of this process."""
        return sum(routed.samples for routed in self.ranks)

    @property
    def global_samples(self) -> int:
        """Samples of all ranks."""
        return self.ranks[0].global_samples

    @property
    def turn(self) -> int:
        """Number of the turn in which its ids travelled."""
        return self.ranks[0].turn

    @property
    def rows_N(self) -> list[int]:
        """Rows that each rank gets."""
        return [int(routed.request.answers_NT.sum()) for routed in self.ranks]


@dataclass(frozen=True, slots=True, eq=False)
class LocalTurn:
    """A batch on its way: how its rows travel, and who counts."""

    batch: LocalBatch
    plan: ExchangePlan
    """Of all parts."""
    step: int
    ledger: Ledger | None
    """None: nobody counts, as in an evaluation."""
    trains: bool = True
    """Whether gradients will follow."""


class LocalRanks:
    """Ranks that are driven together; each thread of the pipeline uses exchanges of its own."""

    def __init__(self, ranks: Sequence[Rank]) -> None:
        """``ranks``: one of a world, or all of it in their order; every rank has met the others."""
        self.ranks = tuple(ranks)
        self.world_size = self.ranks[0].rows.layout.ranks
        self._tables = self.ranks[0].shards.hot.tables
        self._bounds: list[dict[str, Any]] = []  # of where a journal was begun
        assert len(self.ranks) in (1, self.world_size), "one rank is here, or all are"

    def route(
        self, lookups: MaybeLookups, turn: int, coded: bool, ledger: Ledger | None
    ) -> Stages[LocalBatch]:
        """Send the ids of a batch to those who own its rows.

        Ids that are not there are a ``RefusedBatchError`` on every rank.
        """
        parts = self._divide(lookups) if isinstance(lookups, Lookups) else self._refused(lookups)
        counted = _Counted(ledger, len(self.ranks))
        each = zip(self.ranks, parts, counted.ledgers, strict=True)
        routed = yield from in_step([rank.ids.route(part, turn, coded, mine) for rank, part, mine in each])
        counted.add_up()
        return LocalBatch(tuple(routed), _joined_bags(routed, len(self._tables)))

    def reweighted(self, batch: LocalBatch, lookups: Lookups) -> LocalBatch:
        """Return a routed batch with the weights of lookups that have the same ids."""
        routed, names = [], [table.name for table in self._tables]
        for each, part in zip(batch.ranks, self._divide(lookups), strict=True):
            bags, weights_L = each.bags, part.for_tables(names).weights_L
            assert weights_L is not None, "asked for where there are weights"
            if len(weights_L) != len(bags.index):
                raise ConfigError(
                    f"lookups.weights_L: expected {len(bags.index)} weights, one for each id when the batch was "
                    f"prefetched, got {len(weights_L)}; change only weights of a batch that is prefetched"
                )
            request = replace(each.request, bags=bags.weighted(weights_L, self._tables))
            routed.append(replace(each, request=request))
        return LocalBatch(tuple(routed), _joined_bags(routed, len(names)))

    def prefetch(self, turn: LocalTurn, current: LocalBatch) -> Stages[list[PrefetchedRows | None]]:
        """Send rows of a later batch that the ``current`` one does not change.

        Returns None for ranks where no table's rows may leave early.
        """
        changing = dict(zip(self.ranks, current.ranks, strict=True))
        return self._together(turn, lambda rank, mine: rank.rows.prefetch(mine, changing[rank]))

    def fetch(self, turn: LocalTurn, prefetched: list[PrefetchedRows | None] | None) -> Stages[Tensor]:
        """Send the rows of a batch, but for those that have left.

        Returns what all ranks received, R x D.
        """
        early = dict(zip(self.ranks, prefetched or [None] * len(self.ranks), strict=True))
        received = yield from self._together(turn, lambda rank, mine: rank.rows.fetch(mine, early[rank]))
        return received[0] if len(received) == 1 else torch.cat(received)

    def update(self, turn: LocalTurn, gradient_RD: Tensor, *, hold: bool = False) -> Stages[int]:
        """Send gradients and update rows, or hold them; returns the number of rows that changed."""
        parts = dict(zip(self.ranks, torch.split(gradient_RD, turn.batch.rows_N), strict=True))
        changed = yield from self._together(
            turn, lambda rank, mine: rank.rows.update(mine, parts[rank], hold=hold)
        )
        return sum(changed)

    def apply_held(self) -> int:
        """Update rows by the held gradients; returns how many rows changed."""
        return sum(rank.rows.apply_held() for rank in self.ranks)

    def scale_held(self, factor: float) -> None:
        """Multiply the gradients that are held."""
        for rank in self.ranks:
            rank.rows.held.scale(factor)

    def drop_held(self) -> None:
        """Forget the gradients that are held."""
        for rank in self.ranks:
            rank.rows.held.drop()

    def held_square(self) -> Stages[float]:
        """Sum of squares of the gradients that are held, over all ranks."""
        found = yield from in_step(
            [rank.rows.held.square(rank.rows.layout, rank.rows.transport) for rank in self.ranks]
        )
        return found[0]

    @property
    def copies_differ(self) -> bool:
        """Whether copies of hot rows may differ between ranks."""
        return any(rank.stale is not None and rank.stale.steps > 0 for rank in self.ranks)

    def synchronize(self, number: int, plan: ExchangePlan, step: int, ledger: Ledger) -> Stages[None]:
        """Make copies of hot rows equal, where they may differ, at a turn of this number."""
        stale = [rank.stale for rank in self.ranks if rank.stale is not None]
        yield from in_step([copies.synchronize(number, plan, step, ledger) for copies in stale])

    def set_lr(self, lr: float) -> None:
        """Change the learning rate from the next update on."""
        for rank in self.ranks:
            rank.shards.set_lr(lr)
            if rank.stale is not None:
                rank.stale.shards.set_lr(lr)

    def observe(self, observer: Observer | None) -> None:
        """Let something see what rows and gradients become on their way; None: nobody."""
        for rank in self.ranks:
            rank.rows.observe(observer)

    def begin_journal(self) -> None:
        """Note rows from now on, so that ``undo`` can bring them back; copies are equal."""
        for rank in self.ranks:
            if rank.stale is not None:
                rank.stale.save()
            rank.shards.begin_journal()
        self._bounds = [bounds_state(rank) for rank in self.ranks]

    def undo(self) -> None:
        """Bring rows back to where the journal was begun."""
        for rank in self.ranks:
            rank.shards.undo()
        for rank, bounds in zip(self.ranks, self._bounds, strict=True):
            load_bounds(rank, bounds)
            rank.rows.held.drop()
            if rank.stale is not None:
                rank.stale.go_back()

    def end_journal(self) -> None:
        """Note no more, and forget what was noted."""
        for rank in self.ranks:
            rank.shards.end_journal()

    def _refused(self, error: ConfigError) -> Sequence[MaybeLookups]:
        if len(self.ranks) > 1:
            raise RefusedBatchError(str(error))
        return [error]

    def _divide(self, lookups: Lookups) -> list[Lookups]:
        ranks, samples = len(self.ranks), lookups.samples
        if ranks == 1:
            return [lookups]
        try:
            lookups = lookups.for_tables([table.name for table in self._tables])
            checked_lookups(lookups, self._tables)
        except ConfigError as error:  # before anything is sent; samples have their numbers in the whole batch
            raise RefusedBatchError(str(error)) from None
        bounds = [rank * samples // ranks for rank in range(ranks + 1)]
        return [lookups.select(torch.arange(*bounds[rank : rank + 2])) for rank in range(ranks)]

    def _together(
        self, turn: LocalTurn, stages_of: Callable[[Rank, Turn], Stages[Result]]
    ) -> Stages[list[Result]]:
        counted = _Counted(turn.ledger, len(self.ranks))
        each = zip(self.ranks, turn.batch.ranks, counted.ledgers, strict=True)
        stages = [
            stages_of(rank, Turn(routed, turn.plan, turn.step, mine, turn.trains))
            for rank, routed, mine in each
        ]
        results = yield from in_step(stages)
        counted.add_up()
        return results


class _Counted:
    """A ledger of all ranks of this process: bytes of all together, steps of one."""

    def __init__(self, ledger: Ledger | None, ranks: int) -> None:
        self._ledger = ledger
        self._others = ledger.like() if ledger is not None and ranks > 1 else None
        self.ledgers = [ledger, *[self._others] * (ranks - 1)]

    def add_up(self) -> None:
        if self._ledger is not None and self._others is not None:
            self._ledger.take_over(self._others, 0)


def _joined_bags(routed: Sequence[Routed], tables: int) -> Bags:
    """Bags of the samples of all ranks, over a matrix of what they received, rank after rank."""
    bags = [each.bags for each in routed]
    if len(bags) == 1:
        return bags[0]
    ends = np.cumsum([each.request.answers_NT.sum() for each in routed])
    moved = [replace(each, index=each.index + start) for each, start in zip(bags, [0, *ends], strict=False)]
    scale_TB = None
    if any(each.scale_TB is not None for each in bags):
        scales = [
            np.ones((tables, each.samples)) if (s := each.bags.scale_TB) is None else s for each in routed
        ]
        scale_TB = np.concatenate(scales, axis=1)
    if all(each.offsets is None for each in bags):
        weights = [each.weights for each in bags if each.weights is not None]
        index = np.concatenate([each.index for each in moved])
        return Bags(index, None, scale_TB, torch.cat(weights) if weights else None)
    joined = Lookups.joined([_by_table(each, tables) for each in moved])
    return Bags(joined.ids_L.numpy(), joined.offsets.numpy(), scale_TB, joined.weights_L)


def _by_table(bags: Bags, tables: int) -> Lookups:
    """Rows of bags, table by table, as if they were ids."""
    index, offsets, weights = bags.index, bags.offsets, bags.weights
    if offsets is None:  # one row for each bag, sample by sample
        index, offsets = index.reshape(-1, tables).T.ravel(), np.arange(len(index) + 1)
        weights = None if weights is None else weights.view(-1, tables).t().reshape(-1)
    return Lookups(torch.from_numpy(index), torch.from_numpy(offsets), tables, weights)
