"""Subject: a model in training, as far as a guard, an economy or a tuner needs to know it.

``train.Trainer`` is one, on one rank of a run or on all of them in rehearsal. Shape legend: ``B``
samples, ``T`` tables, ``R`` rows, ``D`` dimensions.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from laconic.cost.link import Link
from laconic.data import Samples
from laconic.exchange import Ledger, Table
from laconic.exchange.exchange_plan import Policy
from laconic.exchange.noise import RoundingCost
from laconic.exchange.sent_rows import Observer
from laconic.lookups import Lookups

__all__ = ["Subject", "Undo"]


class Undo(Protocol):
    """A state that can be returned to."""

    def go_back(self) -> None:
        """Make the subject what it was; any number of times, every rank alike."""


class Subject(Protocol):
    """A model in training; every rank calls the same methods in the same order."""

    @property
    def tables(self) -> tuple[Table, ...]:
        """The tables, in their order."""

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the tables."""

    @property
    def peers(self) -> int:
        """Number of other ranks."""

    def gather(self, value: Any) -> list[Any]:
        """Return every rank's value; small ones only."""

    def rounding_cost(self) -> RoundingCost:
        """Return what rounding cost a step's loss when all ranks last added it up."""

    def new_ledger(self) -> Ledger:
        """Return an empty ledger of the subject's tables."""

    def under(self, policy: Policy, ledger: Ledger) -> AbstractContextManager[None]:
        """Let rows and gradients travel as another policy says, counted in another ledger."""

    def snapshot(self) -> AbstractContextManager[Undo]:
        """Remember the state where this is entered."""

    def observe(self, observer: Observer) -> AbstractContextManager[None]:
        """Let something see what rows and gradients become on their way."""

    def step(self, samples: Samples) -> tuple[Tensor, Tensor]:
        """Train on this rank's part of a batch; returns its mean loss before, and logits."""

    def logits(self, samples: Samples) -> Tensor:
        """Return logits with rows as they travel in training; nothing is learnt."""

    def embed(self, samples: Samples) -> Tensor:
        """Return pooled embeddings as they travel in training, B x T x D."""

    def score(self, samples: Samples, rows_BTD: Tensor) -> Tensor:
        """Return logits from given embeddings."""

    def probe_link(self) -> Link:
        """Measure the link to the other ranks; real ones only, as the next two."""

    def rows_from_a_peer(self, lookups: Lookups) -> list[NDArray[np.float32]]:
        """Return rows of every table that one other rank answers: a sample of what travels."""

    def link_changed(self) -> None:
        """Let what adapts to the link by itself, as dense gradients do, measure it anew."""
