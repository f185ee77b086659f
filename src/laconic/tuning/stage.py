"""The stage of a rehearsal: one process that trains as a run's ranks would, with batches in hand.

Every question put to it begins from the same state and the same batches, so differences are paired.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice

import torch
from torch import Tensor

from laconic.data import Samples, Source
from laconic.errors import ConfigError
from laconic.exchange.exchange_plan import ExchangePlan
from laconic.nn import RehearsedEmbeddings
from laconic.train.doubts import check_memory
from laconic.train.placement import Placement
from laconic.train.ranks import Ranks
from laconic.train.settings import RunSettings
from laconic.train.trainer import Snapshot, Trainer

__all__ = ["Stage"]


class Stage:
    """A model that has been trained exactly for a while, and batches it has not seen."""

    def __init__(self, settings: RunSettings, source: Source, ranks: int) -> None:
        self.ranks = ranks
        check_memory(settings, Placement.from_settings(settings.embeddings, source.schema), Ranks(0, 1))
        self.trainer = Trainer(settings, source.schema, Ranks(0, 1), _Given(None), rehearsed_ranks=ranks)
        assert isinstance(self.trainer.embeddings, RehearsedEmbeddings)
        self.embeddings = self.trainer.embeddings
        self.names = [table.name for table in self.embeddings.layout.tables]
        self.exact = ExchangePlan.exact(len(self.names))
        self._batches: Iterator[Samples] = source.batches(
            "train", global_batch=settings.train.batch * ranks, rank=0, ranks=1
        )

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

    def train(
        self, batches: list[Samples], plan: ExchangePlan, done: Callable[[], None] = lambda: None
    ) -> list[float]:
        """Train on these batches; returns the loss of each before it was learnt. ``done`` is called after each."""
        self.embeddings.policy = _Given(plan)
        losses = []
        for samples in batches:
            loss, _ = self.trainer.step(samples)
            losses.append(float(loss))
            done()
        return losses

    def snapshot(self) -> Snapshot:
        """Return to where this is entered."""
        return Snapshot(self.trainer)

    def logits(self, batches: list[Samples], plan: ExchangePlan) -> Tensor:
        """Logits of all samples when rows travel as the plan says; nothing is learnt or counted."""
        self.embeddings.policy = _Given(plan)
        ledger, self.embeddings.ledger = self.embeddings.ledger, self.embeddings.ledger.like()
        try:
            return torch.cat([self.trainer.logits(samples) for samples in batches])
        finally:
            self.embeddings.ledger = ledger


class _Given:
    """The plan that was given, at every step."""

    def __init__(self, plan: ExchangePlan | None) -> None:
        self._plan = plan

    def plan_for(self, step: int) -> ExchangePlan:
        assert self._plan is not None, "a plan is set before anything travels"
        return self._plan
