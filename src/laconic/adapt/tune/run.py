"""A run in rehearsal: one process that trains as the run's ranks would, with batches in hand.

Every question put to it begins from the same state and the same batches, so differences are paired.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from itertools import islice

from laconic.adapt.policy import FixedPolicy
from laconic.adapt.subject import Subject, Undo
from laconic.data import Samples
from laconic.errors import ConfigError
from laconic.exchange.exchange_plan import ExchangePlan

__all__ = ["RehearsedRun"]


class RehearsedRun:
    """A model that has been trained for a while, and batches it has not seen."""

    def __init__(
        self,
        subject: Subject,
        batches: Iterator[Samples],
        ranks: int,
        done: Callable[[], None] = lambda: None,
    ) -> None:
        """``batches``: those of all ranks together. ``done`` is called after each piece of work."""
        self.subject, self.ranks, self.done = subject, ranks, done
        self.names = subject.names
        self.exact = ExchangePlan.exact(len(self.names))
        self._batches = batches
        self._ledger = subject.new_ledger()

    def take(self, count: int) -> list[Samples]:
        """Return the next batches of the epoch."""
        batches = list(self.stream(count))
        if len(batches) < count:
            raise ConfigError(
                "tune: the data set ends before there is something to measure; use fewer --steps or smaller batches"
            )
        return batches

    def stream(self, count: int) -> Iterator[Samples]:
        """Yield the next batches of the epoch."""
        return islice(self._batches, count)

    def train(self, batches: list[Samples], plan: ExchangePlan) -> list[float]:
        """Train on these batches; returns the loss of each before it was learnt."""
        with self.under(plan):
            return [float(self.subject.step(samples)[0]) for samples in batches]

    def snapshot(self) -> AbstractContextManager[Undo]:
        """Remember the state where this is entered."""
        return self.subject.snapshot()

    def under(self, plan: ExchangePlan) -> AbstractContextManager[None]:
        """Let rows and gradients travel as the plan says."""
        return self.subject.under(FixedPolicy(plan), self._ledger)
