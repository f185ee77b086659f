"""The two threads of a process, and its batches in flight.

One step, as the threads see it::

    main thread    bottom MLP | top MLP, their backward | dense gradients | bottom MLP of t + 1 ...
    rows thread    rows of t  | some rows of t + 1      | gradients of t, update, rows of t + 1 ...
    ids thread         ids of t + 1                     |     ids of t + 2 ...

Rows of the next step are fetched as soon as this one's update is done, while the dense gradients
are still on the wire; they are the updated ones. With ``look_ahead`` those that this step does not
change have come before.

Where updates are not fused with ``backward``, gradients wait at their owners. ``apply`` updates
rows by the sum of all that waits, and then the next rows are fetched.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, replace
from enum import Enum
from typing import TypeAlias, TypeVar

from torch import Tensor

from laconic.cost.link import Link
from laconic.errors import PlanError
from laconic.exchange.exchange_plan import ExchangePlan
from laconic.exchange.ids import MaybeLookups
from laconic.exchange.ledger import Ledger
from laconic.exchange.local import LocalBatch, LocalRanks, LocalTurn
from laconic.exchange.prefetched import PrefetchedRows
from laconic.exchange.ranks.link_probe import probe_link
from laconic.exchange.ranks.stages import finish
from laconic.exchange.ranks.worker import RefusedBatchError, Worker
from laconic.exchange.sent_rows import Observer
from laconic.lookups import Lookups

__all__ = ["Fetched", "Manner", "Pipeline", "Purpose"]

Early: TypeAlias = list[PrefetchedRows | None] | None
Result = TypeVar("Result")


class Purpose(Enum):
    """What a batch is looked up for."""

    TRAIN = "train"
    """A backward will follow, and change rows."""
    SCORE = "score"
    """Rows travel as in training; nothing is learnt."""
    EVALUATE = "evaluate"
    """Rows travel exactly; nothing is learnt or counted."""


@dataclass(frozen=True, slots=True)
class Manner:
    """How a batch is looked up."""

    plan: ExchangePlan
    """Codecs of all parts."""
    purpose: Purpose
    ledger: Ledger | None
    """Who counts; None: nobody, as in an evaluation."""

    @property
    def updates(self) -> bool:
        """Whether a backward will change rows."""
        return self.purpose is Purpose.TRAIN


@dataclass(frozen=True, slots=True, eq=False)
class Fetched:
    """A batch whose rows are on their way."""

    batch: object
    """What the user gave."""
    routed: Future[LocalBatch]
    received: Future[Tensor]
    manner: Manner
    step: int
    weighted: Lookups | None = None
    """Lookups whose weights count; None: those that were routed."""


@dataclass(frozen=True, slots=True, eq=False)
class _PrefetchedBatch:
    """A batch that will be started later, whose ids, and perhaps some rows, travel already."""

    batch: object
    """What the user gave."""
    routed: Future[LocalBatch]
    purpose: Purpose
    """What it was prefetched for."""
    rows: Future[Early] | None = None


class Pipeline:
    """What a process has under way, in an order that is the same on every rank."""

    def __init__(
        self,
        ranks: LocalRanks,
        manner: Callable[[Purpose], Manner],
        *,
        hot_every: int = 1,
        look_ahead: bool = False,
        fused: bool = True,
    ) -> None:
        """``manner(purpose)`` says how a batch that begins now is looked up.

        Copies of hot rows are made equal every ``hot_every`` steps.
        """
        self._ranks, self._manner, self._hot_every, self._fused = ranks, manner, hot_every, fused
        self._ids_worker, self._rows_worker = Worker("laconic-ids"), Worker("laconic-rows")
        self.looks_ahead = look_ahead and ranks.world_size > 1
        """Whether some rows of a batch travel when it is prefetched."""
        self._step = 0
        self._journal_step = 0
        self._turn = 0  # of the exchange, evaluation included: ranks compare it
        self._prefetched: list[_PrefetchedBatch] = []
        self._current: Future[LocalBatch] | None = None  # of the training batch that was fetched last
        self._fetched: Fetched | None = None  # before it was started
        self._under_way: list[Future[LocalBatch]] = []  # batches whose update is still to come
        self._given_up: list[Future[LocalBatch]] = []  # what of these discard() found
        self._update: Future[int] | None = None
        self._closed = False

    @property
    def step(self) -> int:
        """Training steps begun; policies and unbiased rounding count by it."""
        return self._step

    @property
    def begun(self) -> int:
        """Training steps that the user has begun: without a batch that was prefetched only."""
        return self._step - int(self._fetched is not None and self._fetched.manner.updates)

    def go_to(self, step: int) -> None:
        """Count on from a step, as after a checkpoint was read."""
        self._step = step

    def prefetch(self, batch: object, lookups: MaybeLookups, purpose: Purpose) -> None:
        """Send the ids of a later batch, and the rows that may leave already.

        ``batch`` is what the user has; whoever starts it later gives the same object. An error in
        place of lookups refuses the batch on all ranks.
        """
        manner = self._manner(purpose)
        routed, current, step = self._route(lookups, manner), self._current, self.step
        rows: Future[Early] | None = None
        next_one = (
            not self._prefetched
            and self._fetched is None
            and len(self._under_way) == 1
            and not self._given_up
        )
        if self.looks_ahead and manner.updates and next_one and current is not None:

            def fetch_early() -> Early:
                if isinstance(current.exception(), RefusedBatchError):
                    return None  # what it would change is not known, and nothing
                turn = LocalTurn(routed.result(), manner.plan, step, manner.ledger)
                return finish(self._ranks.prefetch(turn, current.result()))

            rows = self._rows_worker.submit(fetch_early)
        self._prefetched.append(_PrefetchedBatch(batch, routed, purpose, rows))

    def start(self, batch: object, lookups: MaybeLookups, purpose: Purpose) -> Fetched:
        """Begin to fetch the rows of a batch, if they are not on their way.

        Where it was prefetched, ids are those of then, and weights those of now.
        """
        fetched, before = self._fetched, bool(self._prefetched)
        if fetched is None:
            manner = self._manner(purpose)
            fetched = self._fetch(self._take_prefetched(batch, lookups, manner), manner)
        else:
            before = True
            _check_order(fetched.batch, batch)
            _check_purpose(fetched.manner.purpose, purpose)
            self._fetched = None
        if before and isinstance(lookups, Lookups) and lookups.weights_L is not None:
            return replace(fetched, weighted=lookups.copy())
        return fetched

    def batch_of(self, fetched: Fetched) -> LocalBatch:
        """Return the routed batch, with the weights that count; waits for its ids."""
        batch, weighted = fetched.routed.result(), fetched.weighted
        return batch if weighted is None else self._ranks.reweighted(batch, weighted)

    def update(self, fetched: Fetched, gradient_RD: Tensor, lr: float) -> None:
        """Send gradients. Update rows and fetch the next batch, or let gradients wait."""
        manner, step, ledger = fetched.manner, fetched.step, fetched.manner.ledger
        assert ledger is not None, "training is counted"
        self._end_of(fetched)

        def update() -> int:
            batch = fetched.routed.result()
            turn = LocalTurn(batch, manner.plan, step, ledger)
            if not self._fused:
                return finish(self._ranks.update(turn, gradient_RD, hold=True))
            self._ranks.set_lr(lr)
            changed = finish(self._ranks.update(turn, gradient_RD))
            if (step + 1) % self._hot_every == 0:
                finish(self._ranks.synchronize(batch.turn, manner.plan, step, ledger))
            return changed

        self._update = self._rows_worker.submit(update)
        if self._fused:
            self._fetch_prefetched()

    def apply(self, lr: float) -> None:
        """Update rows by the waiting gradients; then fetch the next batch."""

        def apply() -> int:
            self._ranks.set_lr(lr)
            return self._ranks.apply_held()

        self._update = self._rows_worker.submit(apply)
        self._fetch_prefetched()

    def drop_held(self) -> None:
        """Forget the gradients that wait, once they have come."""
        self._rows_worker.submit(self._ranks.drop_held)

    def scale_held(self, factor: float) -> None:
        """Multiply the gradients that wait now; those that come later are not."""
        self._rows_worker.submit(self._ranks.scale_held, factor)

    def held_square(self) -> float:
        """Return the sum of squares of waiting gradients, over all rows and ranks."""
        return self.run(lambda: finish(self._ranks.held_square()))

    def forget(self, fetched: Fetched) -> None:
        """Count a batch that was refused as not begun."""
        for batches in (self._under_way, self._given_up):
            if fetched.routed in batches:
                batches.remove(fetched.routed)
        if self._step == fetched.step + 1:
            self._step = fetched.step

    def discard(self) -> None:
        """Forget batches that were prefetched and will not be started.

        Batches that were started and had no ``backward`` yet are given up as soon as a later one
        has it; until then they may still have theirs.
        """
        self._prefetched.clear()
        if self._fetched is not None and self._fetched.manner.updates:
            self._step -= 1
            self._under_way.remove(self._fetched.routed)
        self._fetched = None
        self._given_up += self._under_way
        self._under_way = []

    def settle(self) -> None:
        """Wait until rows are as the last ``update`` leaves them."""
        if self._update is not None:
            self._update.result()

    def finish(self) -> int:
        """Settle, and return how many rows of this rank were changed; another call finds none."""
        changed = 0 if self._update is None else self._update.result()
        self._update = None  # only now: who is interrupted while it waits may ask again
        return changed

    def run(self, task: Callable[[], Result]) -> Result:
        """Do something in the thread of rows, after what was asked before."""
        return self._rows_worker.submit(task).result()

    @property
    def copies_differ(self) -> bool:
        """Whether copies of hot rows may differ between ranks."""
        return self._ranks.copies_differ

    def synchronize(self, plan: ExchangePlan, ledger: Ledger) -> None:
        """Make copies of hot rows equal, if they may differ."""
        self.settle()
        turn, step = self._turn, self.step
        if self.copies_differ:
            self.run(lambda: finish(self._ranks.synchronize(turn, plan, step, ledger)))

    def observe(self, observer: Observer | None) -> None:
        """Let something see what rows and gradients become on their way; None: nobody."""
        self.settle()
        self._ranks.observe(observer)

    def probe_link(self) -> Link:
        """Measure the link to the other ranks, while nothing is on its way."""
        return self.run(lambda: probe_link(self._ranks.ranks[0].rows.transport))

    def begin_journal(self) -> None:
        """Note rows from now on, so that ``undo`` can bring them back; copies are equal."""
        self._ranks.begin_journal()
        self._journal_step = self.step

    def undo(self) -> None:
        """Bring rows and step back to where the journal was begun."""
        self.settle_for_journal()
        self._ranks.undo()
        self._step = self._journal_step

    def end_journal(self) -> None:
        """Note no more, and forget what was noted."""
        self.settle()
        self._ranks.end_journal()

    def settle_for_journal(self) -> None:
        """Settle; ``PlanError`` if a batch was prefetched."""
        self.settle()
        if self._fetched is not None or self._prefetched:
            raise PlanError("embeddings: a batch was prefetched; start it, or discard_prefetched(), first")

    def close(self) -> None:
        """End the threads and leave the process groups, unless that was done."""
        if self._closed:
            return
        self._closed = True
        self._ids_worker.close()
        self._rows_worker.close()
        for rank in self._ranks.ranks:
            rank.ids.transport.close()
            rank.rows.transport.close()

    def _route(self, lookups: MaybeLookups, manner: Manner) -> Future[LocalBatch]:
        turn, self._turn = self._turn, self._turn + 1
        if isinstance(lookups, Lookups):
            lookups = lookups.copy()  # read later, in another thread and by backward; a loader may reuse it
        coded = manner.plan.coded_ids
        return self._ids_worker.submit(lambda: finish(self._ranks.route(lookups, turn, coded, manner.ledger)))

    def _take_prefetched(self, batch: object, lookups: MaybeLookups, manner: Manner) -> _PrefetchedBatch:
        if not self._prefetched:
            return _PrefetchedBatch(batch, self._route(lookups, manner), manner.purpose)
        _check_order(self._prefetched[0].batch, batch)
        return self._prefetched.pop(0)

    def _end_of(self, fetched: Fetched) -> None:
        """Take a batch that has its backward off those that are under way."""
        if fetched.routed in self._under_way:
            self._under_way.remove(fetched.routed)
            self._given_up = []
        elif fetched.routed in self._given_up:
            self._given_up.remove(fetched.routed)
        else:
            raise PlanError(
                "embeddings: expected backward of a batch that is under way, got one that was started before "
                "discard_prefetched() and given up when a later one had its backward; start it again"
            )

    def _fetch_prefetched(self) -> None:
        """Fetch the first prefetched batch, once nothing that changes its rows is under way."""
        if self._prefetched and self._fetched is None and not self._under_way and not self._given_up:
            batch = self._prefetched.pop(0)
            self._fetched = self._fetch(batch, self._manner(batch.purpose))

    def _fetch(self, batch: _PrefetchedBatch, manner: Manner) -> Fetched:
        step, routed, early = self.step, batch.routed, batch.rows
        if manner.updates:
            self._step += 1
            self._under_way.append(routed)
            self._current = routed

        def fetch() -> Tensor:
            prefetched = None if early is None else early.result()
            turn = LocalTurn(routed.result(), manner.plan, step, manner.ledger, manner.updates)
            return finish(self._ranks.fetch(turn, prefetched))

        return Fetched(batch.batch, routed, self._rows_worker.submit(fetch), manner, step)


def _check_order(expected: object, started: object) -> None:
    """Raise if another batch is started than the one that was prefetched first."""
    if expected is not started:
        raise PlanError(
            "embeddings: another batch was prefetched; start the same objects in the order of prefetch, "
            "or discard_prefetched()"
        )


def _check_purpose(prefetched: Purpose, started: Purpose) -> None:
    """Raise if rows are on their way for something else than what they are wanted for."""
    if started is not prefetched:
        raise PlanError(
            f"embeddings: rows of this batch were prefetched to {prefetched.value}, not to {started.value}; "
            "discard_prefetched() first"
        )
