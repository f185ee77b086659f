"""What happens between two steps: ranks gather evidence, and guard and economy decide by it.

All ranks do the same at the same steps; what they decide depends only on what they gathered from
each other. A measurement of the economy leaves training as it found it: what it trains is taken
back, what it sends is counted apart.

Shape legend: ``R`` rows, ``D`` dimensions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from laconic.adapt.adaptive import AdaptivePolicy, may_be_cast
from laconic.adapt.economy import Decision, Economy, RankCosts
from laconic.adapt.guard import HarmEstimate, harm_of
from laconic.adapt.subject import Subject
from laconic.codecs import BoundedRows, Cast
from laconic.codecs.batch import BlockCodec
from laconic.cost.measure import codec_costs
from laconic.data import Samples
from laconic.exchange.scales import agrees_after
from laconic.exchange.sent_rows import KeptBlocks

__all__ = ["AHEAD", "Accountant", "Adaptation"]

AHEAD = 1
"""Batches that a review needs to have in hand."""

_FIRST, _LONGEST = (
    10,
    640,
)  # steps before the economy's first review, and between later ones, which double until then

Rows = NDArray[np.float32]


class Adaptation:
    """Watches one run."""

    def __init__(self, subject: Subject, policy: AdaptivePolicy) -> None:
        self._subject, self._policy = subject, policy
        self._accountant = None if policy.economy is None else Accountant(subject, policy, policy.economy)
        self._rounds = any(
            isinstance(codec, BoundedRows) for table in policy.base.tables for codec in table.both
        )
        self._losses: list[tuple[float, int]] = []  # sums over this rank's samples, their numbers

    @property
    def ahead(self) -> int:
        """Batches that must be in hand after a step."""
        return 0 if self._accountant is None else AHEAD

    @property
    def review_bytes(self) -> int:
        """Bytes that reviews have sent from this rank."""
        ledger = None if self._accountant is None else self._accountant.ledger
        return 0 if ledger is None else sum(account.sent for account in ledger.accounts.values())

    def pauses(self, step: int) -> bool:
        """Whether something happens after a step, so that nothing may be on its way."""
        guard = self._policy.guard is not None and self._rounds and agrees_after(step)
        return guard or (self._accountant is not None and self._accountant.due(step))

    def after(self, step: int, loss: float, samples: int, ahead: Sequence[Samples]) -> list[dict[str, Any]]:
        """Observe a step and do what is due; returns decisions, to be written down."""
        decisions: list[dict[str, Any]] = []
        if self._accountant is not None and self._accountant.due(step) and ahead:
            found = self._accountant.review(step, ahead[0])
            decisions += [{"part": "economy", **asdict(decision)} for decision in found]
        if not self._rounds:
            return decisions
        self._losses.append((loss * samples, samples))
        if not agrees_after(step):
            return decisions
        self._share_losses()
        self._policy.losses.begin_anew()
        guard = self._policy.guard
        if guard is None:
            return decisions
        moved = guard.review(step, self._policy.losses.mean, self._subject.rounding_cost())
        return decisions + [{"part": "guard", **asdict(decision)} for decision in moved]

    def estimate(self) -> HarmEstimate:
        """Return what rounding has cost the model, as far as this can be known; all ranks alike."""
        return harm_of(self._subject.rounding_cost(), self._policy.losses.mean)

    def review_economy(self, step: int, samples: Samples) -> None:
        """Review the economy now, whenever it is due; every rank alike."""
        if self._accountant is not None:
            self._accountant.review(step, samples)

    def settle(self) -> None:
        """Before a checkpoint: leave nothing to be shared that a resumed run would not know."""
        if self._losses:  # on all ranks, or on none
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
        for ranks in zip(*everyone, strict=True):  # step by step: sums do not depend on when they are shared
            self._policy.losses.add(sum(loss for loss, _ in ranks), sum(count for _, count in ranks))


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
