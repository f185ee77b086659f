"""What one rank measures for the economy: its link, and what codecs cost on rows and gradients at hand.

Training is as before afterwards. Nothing is taken to hide behind computation: encoding, decoding and gloo's
own work need the cores that compute.

Shape legend: ``T`` tables, ``R`` rows, ``D`` dimensions.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from laconic.adapt.adaptive import AdaptivePolicy, may_be_cast
from laconic.adapt.economy import Decision, Economy, Measurement
from laconic.codecs import Cast
from laconic.codecs.batch import BlockCodec
from laconic.cost.measure import codec_costs
from laconic.data import Samples
from laconic.lookups import Lookups
from laconic.nn import ShardedEmbeddings
from laconic.train.snapshot import Snapshot
from laconic.train.trainer import Trainer

__all__ = ["Accountant"]

_FIRST, _LONGEST = 10, 640  # steps before the first review, and between later ones, which double until then

Rows = NDArray[np.float32]


class Accountant:
    """Reviews the economy of one run; every rank calls it alike."""

    def __init__(self, trainer: Trainer, policy: AdaptivePolicy, economy: Economy) -> None:
        self._trainer, self._policy, self._economy = trainer, policy, economy
        self.ledger = trainer.embeddings.ledger.like()
        """What reviews sent."""

    @staticmethod
    def due(step: int) -> bool:
        """Whether there is a review after so many steps: a function of the step, so a resumed run agrees."""
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
        embeddings = self._trainer.embeddings
        assert isinstance(embeddings, ShardedEmbeddings), "only real ranks have links"
        ledger, embeddings.ledger = embeddings.ledger, self.ledger
        try:
            measurement = self._measure(embeddings, samples)
        finally:
            embeddings.ledger = ledger
        if self._trainer.compressor is not None:
            self._trainer.compressor.look_again()
        return self._economy.review(step, self._trainer.ranks.gather(measurement))

    def _measure(self, embeddings: ShardedEmbeddings, samples: Samples) -> Measurement:
        link = embeddings.probe_link()
        plan = self._policy.uneconomical_plan(embeddings.step)
        others = embeddings.layout.ranks - 1
        with self._policy.trying("exact"):
            rows_TRD = _rows_from_one_rank(embeddings, samples.lookups)
            kept = _Kept(len(plan.tables))
            with Snapshot(self._trainer) as snapshot:
                embeddings.watch_updates(kept)
                self._trainer.step(samples)
                embeddings.watch_updates(None)
                snapshot.go_back()
        gradients_TRD = kept.rows_TRD(embeddings.dim)
        tables = [others] * len(plan.tables)
        in_use = zip(plan.tables, self._economy.choice("forward"), strict=True)
        forward = codec_costs(rows_TRD, [_candidates(table.forward, use) for table, use in in_use], tables)
        in_use = zip(plan.tables, self._economy.choice("backward"), strict=True)
        candidates = [_candidates(table.backward, use) for table, use in in_use]
        backward = codec_costs(gradients_TRD, candidates, tables)
        return Measurement(link, forward, backward)


def _rows_from_one_rank(embeddings: ShardedEmbeddings, lookups: Lookups) -> list[Rows]:
    """Rows of every table that one of the other ranks answers: a sample of what travels."""
    with torch.no_grad():
        pending = embeddings.start(lookups)
    rows_RD = pending.received.result().numpy()
    answers_NT = pending.routed.result().request.answers_NT
    others = [rank for rank in range(embeddings.layout.ranks) if rank != embeddings.layout.rank]
    tables = len(embeddings.layout.tables)  # of copies nobody answers any
    counts_T = answers_NT[others[0], :tables] if others else np.zeros(tables, np.int64)
    return np.split(rows_RD[: int(counts_T.sum())], np.cumsum(counts_T)[:-1])


def _candidates(codec: BlockCodec | None, in_use: str) -> tuple[BlockCodec | None, ...]:
    """Exact, cast, bounded: what a table may travel as without breaking what its plan promises."""
    bounded = exact = Cast(dtype="fp32")
    if codec is not None:
        bounded = codec  # type: ignore[assignment]
    if may_be_cast(codec):
        return exact, Cast(dtype="fp16"), bounded
    # a cast that bounds have become too narrow for travels bounded, and costs that until it is left
    return exact, bounded if in_use == "cast" else None, bounded


class _Kept:
    """Gradients that go to the first of the other ranks, as ``watch_updates`` shows them."""

    def __init__(self, tables: int) -> None:
        self._tables = tables
        self._seen: list[tuple[NDArray[np.int64], Rows]] = []

    def add(self, table_R: NDArray[np.int64], exact_RD: NDArray[Any], applied_RD: NDArray[Any]) -> None:
        """Keep the rows of the first destination: tables ascend until the next one begins."""
        turns = np.flatnonzero(np.diff(table_R) < 0)
        end = int(turns[0]) + 1 if len(turns) else len(table_R)
        self._seen.append((table_R[:end].copy(), exact_RD[:end].astype(np.float32)))

    def rows_TRD(self, dim: int) -> list[Rows]:
        """Rows of every table."""
        if not self._seen:
            return [np.empty((0, dim), np.float32)] * self._tables
        table_R, rows_RD = self._seen[0]
        return [rows_RD[table_R == t] for t in range(self._tables)]
