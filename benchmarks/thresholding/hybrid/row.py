"""One row of the benchmark."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.results import paired_ratios
from benchmarks.thresholding.hybrid.jobs import PARTS, Answer
from benchmarks.thresholding.hybrid.plan import Plan

__all__ = ["Row", "rows_of", "step_ms"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """What was measured of one method on one model."""

    method: str
    model: str
    samples: int
    """Of a replica in a step."""
    hosts: int
    replicas: int
    rate_mbit: float | None
    """Of every link, in each direction; None: loopback, not limited."""
    ms: float
    """Median; of every step, the slowest rank's time. Hosts that share a core take turns to compute."""
    communication_share: float
    """Part of a step beyond that of the same computation with nothing sent."""
    bytes_sent_per_host: float
    """By the counter of its interface, headers included."""
    bytes_split: float
    """Per host, at splits, as the method counts them."""
    bytes_dense: float | None
    """Per host, of gradients; None: DDP does not count them."""
    equal: bool
    """Whether replicas have the same weights, bit for bit; of no meaning where nothing is sent."""
    over_plain: tuple[float, float, float] | None
    """Time over that of ``plain``, paired by round: mean and 95 % interval."""


def rows_of(answers: Sequence[Answer], plan: Plan, *, hosts: int, rate_mbit: float | None) -> list[Row]:
    """Rows of one model."""
    known = {answer.method: answer for answer in answers}
    alone, plain = known["alone"], known["plain"]
    return [
        Row(
            method=answer.method,
            model=plan.name,
            samples=plan.batch,
            hosts=hosts,
            replicas=hosts // PARTS,
            rate_mbit=rate_mbit,
            ms=step_ms(answer),
            communication_share=max(0.0, 1 - step_ms(alone) / step_ms(answer)),
            bytes_sent_per_host=answer.bytes_sent,
            bytes_split=answer.bytes_split,
            bytes_dense=answer.bytes_dense or None,
            equal=answer.equal,
            over_plain=None if answer in (alone, plain) else paired_ratios(answer.round_ms, plain.round_ms),
        )
        for answer in answers
    ]


def step_ms(answer: Answer) -> float:
    """Median over all steps."""
    return statistics.median(time for turn in answer.round_ms for time in turn)
