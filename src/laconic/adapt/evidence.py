"""What happens between two steps: ranks gather evidence, and guard and economy decide by it.

All ranks do the same at the same steps; what they decide depends only on what they gathered from
each other. A review leaves training as it found it: what it trains is taken back, what it sends is
counted apart.

Shape legend: ``B`` samples, ``T`` tables, ``R`` rows, ``D`` dimensions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from laconic.adapt.adaptive import AdaptivePolicy, may_be_cast
from laconic.adapt.economy import Decision, Economy, RankCosts
from laconic.adapt.guard import ForkEvidence, Guard, GuardDecision, LookEvidence, Losses
from laconic.adapt.harm import curvature_harm, sample_losses
from laconic.adapt.subject import Subject
from laconic.codecs import Cast
from laconic.codecs.batch import BlockCodec
from laconic.cost.measure import codec_costs
from laconic.data import Samples
from laconic.exchange.errors_seen import UpdateError, cosine_T, relative_error_T
from laconic.exchange.sent_rows import KeptBlocks

__all__ = ["AHEAD", "Accountant", "Adaptation", "Reviewer"]

_FORK_STEPS, _LOOK_BATCHES = 6, 3
AHEAD = max(_FORK_STEPS, _LOOK_BATCHES)
"""Batches that a review needs to have in hand."""

_FIRST, _LONGEST = (
    10,
    640,
)  # steps before the economy's first review, and between later ones, which double until then

Floats = NDArray[np.float64]
Rows = NDArray[np.float32]


class Adaptation:
    """Watches one run."""

    def __init__(self, subject: Subject, policy: AdaptivePolicy) -> None:
        self._subject, self._policy = subject, policy
        self._reviewer = None if policy.guard is None else Reviewer(subject, policy, policy.guard)
        self._accountant = None if policy.economy is None else Accountant(subject, policy, policy.economy)
        self._losses: list[tuple[int, float, int]] = []  # step, sum over this rank's samples, their number

    @property
    def ahead(self) -> int:
        """Batches that must be in hand after a step."""
        if self._reviewer is not None:
            return AHEAD
        return 0 if self._accountant is None else 1

    @property
    def review_bytes(self) -> int:
        """Bytes that reviews have sent from this rank."""
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
        if self._losses or self._subject.peers:
            self._share_losses()

    def summary(self) -> str:
        """Return a few words for the progress line."""
        words = [] if self._policy.guard is None else [self._policy.guard.summary()]
        if self._accountant is not None:
            words.append(self._accountant.summary())
        return "  ".join(words)

    def _share_losses(self) -> None:
        """Tell all ranks the losses since the last time."""
        everyone = self._subject.gather(self._losses)
        self._losses = []
        for steps in zip(*everyone, strict=True):
            losses, samples = sum(part[1] for part in steps), sum(part[2] for part in steps)
            if samples:
                self._policy.losses.add(steps[0][0], losses / samples)


class Reviewer:
    """Makes the reviews that the guard asks for; every rank calls it alike."""

    def __init__(self, subject: Subject, policy: AdaptivePolicy, guard: Guard) -> None:
        self._subject, self._policy, self._guard = subject, policy, guard
        self.ledger = subject.new_ledger()
        """Bytes that reviews sent."""

    def review(self, step: int, ahead: Sequence[Samples], losses: Losses) -> list[GuardDecision]:
        """Make the reviews that are due after ``step`` steps; returns what was decided.

        They use the batches that come next. Near the end of the data there are too few of them,
        and there is no review.
        """
        due = self._guard.due(step)
        if not due or len(ahead) < AHEAD:
            return []
        decisions = []
        if "fork" in due:
            decisions += self._guard.fork(self._fork(step, ahead[:_FORK_STEPS], losses.slope()))
        if "look" in due:
            decisions += self._guard.look(self._look(step, ahead[:_LOOK_BATCHES]))
        return decisions

    def _look(self, step: int, batches: Sequence[Samples]) -> LookEvidence:
        subject, policy, tables = self._subject, self._policy, len(self._guard.names)
        harms: list[Tensor] = []
        losses: list[Tensor] = []
        harm_T = np.zeros(tables)
        error = UpdateError(tables)
        for samples in batches:
            with subject.under(policy.exact, self.ledger):
                exact_BTD = subject.embed(samples)
            with subject.under(policy.candidate, self.ledger):
                arrived_BTD = subject.embed(samples)
            exact_B = subject.score(samples, exact_BTD)
            losses.append(sample_losses(exact_B, samples.label_B))
            harms.append(curvature_harm(exact_B, subject.score(samples, arrived_BTD)))
            for t in range(tables):
                mixed_BTD = exact_BTD.clone()
                mixed_BTD[:, t] = arrived_BTD[:, t]
                harm_T[t] += float(curvature_harm(exact_B, subject.score(samples, mixed_BTD)).sum())
            table_R = np.tile(np.arange(tables), len(samples))
            flat = (-1, exact_BTD.shape[2])
            error.add_rows(table_R, exact_BTD.reshape(flat).numpy(), arrived_BTD.reshape(flat).numpy())
        parts = subject.gather((torch.cat(losses).numpy(), torch.cat(harms).numpy(), harm_T, error.sums_4T))
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
        subject = self._subject
        error = UpdateError(len(self._guard.names))
        with subject.snapshot() as snapshot:
            with subject.observe(error), subject.under(self._policy.candidate, self.ledger):
                for samples in batches:
                    subject.step(samples)
            compressed_B = self._losses(batches)
            snapshot.go_back()
            with subject.under(self._policy.exact, self.ledger):
                before = [
                    (float(subject.step(samples)[0]) * len(samples), len(samples)) for samples in batches
                ]
            exact_B = self._losses(batches)
            snapshot.go_back()
        # the loss of a batch before its own step stands for its loss before all: one pass less
        begun, samples_seen = (sum(column) for column in zip(*before, strict=True))
        parts = subject.gather(
            (compressed_B - exact_B, begun - float(exact_B.sum()), samples_seen, error.sums_4T)
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
        with self._subject.under(self._policy.exact, self.ledger):
            found = [sample_losses(self._subject.logits(samples), samples.label_B) for samples in batches]
        return torch.cat(found).numpy()


class Accountant:
    """Measures for the economy: the link, and what codecs cost on rows and gradients at hand.

    Nothing is taken to hide behind computation: encoding, decoding and gloo's own work need the
    cores that compute.
    """

    def __init__(self, subject: Subject, policy: AdaptivePolicy, economy: Economy) -> None:
        self._subject, self._policy, self._economy = subject, policy, economy
        self.ledger = subject.new_ledger()
        """Bytes that reviews sent."""

    @staticmethod
    def due(step: int) -> bool:
        """Whether there is a review after this step; resumed runs agree on it."""
        at, interval = _FIRST, _FIRST
        while at < step:
            interval = min(2 * interval, _LONGEST)
            at += interval
        return at == step

    def summary(self) -> str:
        """Return how many tables are not compressed, for the progress line."""
        off = [
            sum(choice != "bounded" for choice in self._economy.choice(direction))
            for direction in ("forward", "backward")
        ]
        return f"compression off: {off[0]} rows, {off[1]} gradients" if any(off) else ""

    def review(self, step: int, samples: Samples) -> list[Decision]:
        """Measure, tell all ranks, decide alike."""
        measurement = self._measure(step, samples)
        self._subject.link_changed()
        return self._economy.review(step, self._subject.gather(measurement))

    def _measure(self, step: int, samples: Samples) -> RankCosts:
        subject = self._subject
        link = subject.probe_link()
        plan = self._policy.fully_compressed_plan(step)
        tables = len(plan.tables)
        kept = KeptBlocks()
        with subject.under(self._policy.exact, self.ledger):
            rows_TRD = subject.rows_from_a_peer(samples.lookups)
            with subject.snapshot() as snapshot:
                with subject.observe(kept):
                    subject.step(samples)
                snapshot.go_back()
        in_use = zip(plan.tables, self._economy.choice("forward"), strict=True)
        candidates = [_candidates(table.forward, use) for table, use in in_use]
        forward = codec_costs(rows_TRD, candidates, [subject.peers] * tables)
        in_use = zip(plan.tables, self._economy.choice("backward"), strict=True)
        candidates = [_candidates(table.backward, use) for table, use in in_use]
        backward = codec_costs(_first_block(kept, tables), candidates, [subject.peers] * tables)
        return RankCosts(link, forward, backward)


def _candidates(codec: BlockCodec | None, in_use: str) -> tuple[BlockCodec | None, ...]:
    """Exact, cast, bounded: what a table may travel as without breaking what its plan promises."""
    bounded = exact = Cast("fp32")
    if codec is not None:
        bounded = codec  # type: ignore[assignment]
    if may_be_cast(codec):
        return exact, Cast("fp16"), bounded
    # if a bound became too narrow for float16, the table is sent with its codec until the next
    # review moves it
    return exact, bounded if in_use == "cast" else None, bounded


def _first_block(kept: KeptBlocks, tables: int) -> list[Rows]:
    """Gradients of every table that went to the first of the other ranks."""
    if not kept.of("backward"):
        return [np.empty((0, 0), np.float32)] * tables
    blocks = kept.of("backward")[0]
    end = int(blocks.counts_MP[:1].sum())
    rows_RD, table_R = blocks.rows_RD[:end].astype(np.float32), blocks.table_R[:end]
    return [rows_RD[table_R == t] for t in range(tables)]
