"""Reviews: the evidence that the guard asks for, gathered from all ranks between two steps.

A review leaves training as it found it: what it trains is taken back, what it sends is counted apart.

Shape legend: ``B`` samples, ``T`` tables, ``D`` dimensions.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from laconic.adapt.adaptive import AdaptivePolicy
from laconic.adapt.guard import ForkEvidence, Guard, GuardDecision, LookEvidence, Losses
from laconic.data import Samples
from laconic.exchange.update_error import UpdateError, cosine_T, relative_error_T
from laconic.train.harm import curvature_harm, sample_losses
from laconic.train.snapshot import Snapshot
from laconic.train.trainer import Trainer

__all__ = ["AHEAD", "Reviewer"]

_FORK_STEPS, _LOOK_BATCHES = 6, 3
AHEAD = max(_FORK_STEPS, _LOOK_BATCHES)
"""Batches that a review needs to have in hand."""

Floats = NDArray[np.float64]


class Reviewer:
    """Makes the reviews of one run; every rank calls it alike."""

    def __init__(self, trainer: Trainer, policy: AdaptivePolicy, guard: Guard) -> None:
        self._trainer, self._policy, self._guard = trainer, policy, guard
        self.ledger = trainer.embeddings.ledger.like()
        """What reviews sent."""

    def review(self, step: int, ahead: Sequence[Samples], losses: Losses) -> list[GuardDecision]:
        """Make the reviews that are due after ``step`` steps on the batches that come next; returns what was decided.

        Near the end of the data there are not enough of them, and no review.
        """
        due = self._guard.due(step)
        if not due or len(ahead) < AHEAD:
            return []
        embeddings = self._trainer.embeddings
        ledger, embeddings.ledger = embeddings.ledger, self.ledger
        decisions = []
        try:
            if "fork" in due:
                decisions += self._guard.fork(self._fork(step, ahead[:_FORK_STEPS], losses.slope()))
            if "look" in due:
                decisions += self._guard.look(self._look(step, ahead[:_LOOK_BATCHES]))
        finally:
            embeddings.ledger = ledger
        return decisions

    def _look(self, step: int, batches: Sequence[Samples]) -> LookEvidence:
        trainer, tables = self._trainer, len(self._guard.names)
        harms: list[Tensor] = []
        losses: list[Tensor] = []
        harm_T = np.zeros(tables)
        error = UpdateError(tables)
        for samples in batches:
            with self._policy.trying("exact"):
                exact_BTD = trainer.embed(samples)
            with self._policy.trying("candidate"):
                arrived_BTD = trainer.embed(samples)
            exact_B = trainer.score(samples, exact_BTD)
            losses.append(sample_losses(exact_B, samples.label_B))
            harms.append(curvature_harm(exact_B, trainer.score(samples, arrived_BTD)))
            for t in range(tables):
                mixed_BTD = exact_BTD.clone()
                mixed_BTD[:, t] = arrived_BTD[:, t]
                harm_T[t] += float(curvature_harm(exact_B, trainer.score(samples, mixed_BTD)).sum())
            table_R = np.tile(np.arange(tables), len(samples))
            flat = (-1, exact_BTD.shape[2])
            error.add(table_R, exact_BTD.reshape(flat).numpy(), arrived_BTD.reshape(flat).numpy())
        parts = trainer.ranks.gather(
            (torch.cat(losses).numpy(), torch.cat(harms).numpy(), harm_T, error.sums_4T)
        )
        everyone = [np.concatenate([part[k] for part in parts]) for k in (0, 1)]
        samples_seen = max(len(everyone[0]), 1)
        return LookEvidence(
            step,
            float(everyone[0].mean()) if len(everyone[0]) else 1.0,
            everyone[1],
            sum(part[2] for part in parts) / samples_seen,
            relative_error_T(sum(part[3] for part in parts)),
        )

    def _fork(self, step: int, batches: Sequence[Samples], slope: float) -> ForkEvidence:
        trainer = self._trainer
        watch = UpdateError(len(self._guard.names))
        with Snapshot(trainer) as snapshot:
            trainer.embeddings.watch_updates(watch)
            with self._policy.trying("candidate"):
                for samples in batches:
                    trainer.step(samples)
            trainer.embeddings.watch_updates(None)
            compressed_B = self._losses(batches)
            snapshot.go_back()
            with self._policy.trying("exact"):
                before = [
                    (float(trainer.step(samples)[0]) * len(samples), len(samples)) for samples in batches
                ]
            exact_B = self._losses(batches)
            snapshot.go_back()
        # what a batch had lost before its own step stands for its loss before all of them: one pass less
        begun, samples_seen = (sum(column) for column in zip(*before, strict=True))
        parts = trainer.ranks.gather(
            (compressed_B - exact_B, begun - float(exact_B.sum()), samples_seen, watch.sums_4T)
        )
        sums_4T = sum(part[3] for part in parts)
        everyone = sum(part[2] for part in parts)
        return ForkEvidence(
            step,
            np.concatenate([part[0] for part in parts]),
            sum(part[1] for part in parts) / everyone if everyone else 0.0,
            relative_error_T(sums_4T),
            cosine_T(sums_4T),
            slope,
        )

    def _losses(self, batches: Sequence[Samples]) -> Floats:
        """Loss of every sample, rows exact."""
        with self._policy.trying("exact"):
            found = [sample_losses(self._trainer.logits(samples), samples.label_B) for samples in batches]
        return torch.cat(found).numpy()
