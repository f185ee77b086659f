"""Adaptation of a run: who observes training between steps, and what is written down about it.

All ranks do the same at the same steps; what they decide depends only on what they gathered from each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from laconic.adapt.adaptive import AdaptivePolicy
from laconic.adapt.decay import Decay
from laconic.adapt.economy import Economy
from laconic.adapt.guard import Guard
from laconic.data import Samples
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
    return AdaptivePolicy(
        fixed.plan,
        warmup_steps=settings.warmup_steps,
        decay=decay,
        guard=guard,
        economy=economy,
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
        return 0 if self._accountant is None else 1

    @property
    def review_bytes(self) -> int:
        """What reviews have sent from this rank."""
        parts = [part for part in (self._reviewer, self._accountant) if part is not None]
        return sum(account.sent for part in parts for account in part.ledger.accounts.values())

    def pauses(self, step: int) -> bool:
        """Whether something happens after a step, so that nothing may be on its way."""
        guard = self._policy.guard
        return (guard is not None and bool(guard.due(step))) or (
            self._accountant is not None and self._accountant.due(step)
        )

    def after(self, step: int, loss: float, samples: int, ahead: Sequence[Samples]) -> list[dict[str, Any]]:
        """Observe a step and do what is due; returns decisions, to be written down."""
        decisions: list[dict[str, Any]] = []
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

    def _share_losses(self) -> None:
        """Tell all ranks the losses since the last time."""
        everyone = self._trainer.ranks.gather(self._losses)
        self._losses = []
        for steps in zip(*everyone, strict=True):
            losses, samples = sum(part[1] for part in steps), sum(part[2] for part in steps)
            if samples:
                self._policy.losses.add(steps[0][0], losses / samples)
