"""Adaptation of a run: who observes training between steps, and what is written down about it.

All ranks do the same at the same steps; what they decide depends only on what they gathered from each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from laconic.adapt.adaptive import AdaptivePolicy
from laconic.adapt.decay import Decay
from laconic.adapt.economy import Economy
from laconic.adapt.guard import Guard
from laconic.adapt.principal_axes import PrincipalAxes
from laconic.codecs.axes import Axes
from laconic.data import Samples
from laconic.errors import ConfigError
from laconic.train.economics import Accountant
from laconic.train.policy import make_policy
from laconic.train.review import AHEAD, Reviewer
from laconic.train.settings import ExchangeSettings
from laconic.train.trainer import Trainer

__all__ = ["Adaptation", "make_adaptive_policy"]


def make_adaptive_policy(settings: ExchangeSettings, names: Sequence[str], ranks: int) -> AdaptivePolicy:
    """Return the policy that the settings describe, with all that adapts it; one rank has no economy."""
    fixed = make_policy(settings, names)
    decay = None
    if settings.decay.kind != "none":
        decay = Decay(settings.decay.kind, settings.decay.k, settings.decay.steps)
    budget = settings.guard.budget
    guard = None if budget is None else Guard(tuple(names), budget)
    economy = Economy(tuple(names)) if settings.economy and ranks > 1 else None
    if settings.axes == "principal" and settings.kind != "bounded":
        raise ConfigError(
            f"exchange.axes: 'principal' is for bounded rows, but exchange.kind is {settings.kind!r}; leave it out"
        )
    principal = PrincipalAxes() if settings.axes == "principal" else None
    return AdaptivePolicy(
        fixed.plan,
        warmup_steps=settings.warmup_steps,
        decay=decay,
        guard=guard,
        economy=economy,
        principal=principal,
    )


class Adaptation:
    """Watches one run."""

    def __init__(self, trainer: Trainer, policy: AdaptivePolicy) -> None:
        self._trainer, self._policy = trainer, policy
        self._reviewer = None if policy.guard is None else Reviewer(trainer, policy, policy.guard)
        self._accountant = None if policy.economy is None else Accountant(trainer, policy, policy.economy)
        self._losses: list[tuple[int, float, int]] = []  # step, sum over this rank's samples, their number

    @property
    def ahead(self) -> int:
        """Batches that must be in hand after a step."""
        if self._reviewer is not None:
            return AHEAD
        return 1 if self._accountant is not None or self._policy.principal is not None else 0

    @property
    def review_bytes(self) -> int:
        """What reviews have sent from this rank."""
        parts = [part for part in (self._reviewer, self._accountant) if part is not None]
        return sum(account.sent for part in parts for account in part.ledger.accounts.values())

    def pauses(self, step: int) -> bool:
        """Whether something happens after a step, so that nothing may be on its way."""
        guard = self._policy.guard
        return (
            (guard is not None and bool(guard.due(step)))
            or (self._accountant is not None and self._accountant.due(step))
            or (self._policy.principal is not None and PrincipalAxes.due(step))
        )

    def after(self, step: int, loss: float, samples: int, ahead: Sequence[Samples]) -> list[dict[str, Any]]:
        """Observe a step and do what is due; returns decisions, to be written down."""
        decisions: list[dict[str, Any]] = []
        if self._policy.principal is not None and PrincipalAxes.due(step) and ahead:
            decisions += self._look_for_axes(self._policy.principal, ahead[0])
        if self._accountant is not None and self._accountant.due(step) and ahead:
            found = self._accountant.review(step, ahead[0])
            decisions += [{"part": "economy", **asdict(decision)} for decision in found]
        if self._reviewer is None:
            return decisions
        self._losses.append((step, loss * samples, samples))
        if not self.pauses(step):
            return decisions
        self._share_losses()
        tightened = self._reviewer.review(step, ahead, self._policy.losses)
        return decisions + [{"part": "guard", **asdict(decision)} for decision in tightened]

    def review_economy(self, step: int, samples: Samples) -> None:
        """Review the economy now, whenever it is due; every rank alike."""
        if self._accountant is not None:
            self._accountant.review(step, samples)

    def settle(self) -> None:
        """Before a checkpoint: leave nothing to be shared that a resumed run would not know."""
        if self._losses or self._trainer.ranks.count > 1:
            self._share_losses()

    def summary(self) -> str:
        """Return a few words for the progress line."""
        words = [] if self._policy.guard is None else [self._policy.guard.summary()]
        if self._accountant is not None:
            words.append(self._accountant.summary())
        return "  ".join(words)

    def _look_for_axes(self, principal: PrincipalAxes, samples: Samples) -> list[dict[str, Any]]:
        """Find the directions in which the rows of a batch are long; where none are finite, axes stay."""
        ranks = self._trainer.ranks
        everyone = ranks.gather(self._trainer.embeddings.row_moments(samples.lookups))
        moment_DD = np.sum([moment_DD for moments in everyone for moment_DD in moments], axis=0)
        if not moment_DD.any():
            return []
        # of one rank: machines that differ find eigenvectors that do, in their last bits
        axes = Axes(len(moment_DD), ranks.gather(Axes.principal(moment_DD).data)[0])
        old = "own" if principal.axes is None else principal.axes.digest
        principal.take(axes)
        along_D = ((moment_DD @ axes.matrix_DD) * axes.matrix_DD).sum(axis=0)
        quarter = -(-axes.dim // 4)
        share = along_D[:quarter].sum() / along_D.sum()
        why = f"{share:.0%} of the length of rows is along {quarter} of {axes.dim} axes"
        return [{"part": "axes", "old": old, "new": axes.digest, "reason": why}]

    def _share_losses(self) -> None:
        """Tell all ranks the losses since the last time."""
        everyone = self._trainer.ranks.gather(self._losses)
        self._losses = []
        for steps in zip(*everyone, strict=True):
            losses, samples = sum(part[1] for part in steps), sum(part[2] for part in steps)
            if samples:
                self._policy.losses.add(steps[0][0], losses / samples)
