"""One row of the benchmark of sums."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.reduction.jobs import Answer
from benchmarks.reduction.workload import Supports
from benchmarks.results import paired_ratios
from laconic.errors import CommError

__all__ = ["Row", "rows_of"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """What was measured of one method on one workload."""

    method: str
    workload: str
    sparsity: float
    """Share of zeros on rank 0."""
    supports: Supports
    hosts: int
    rate_mbit: float | None
    """Of every link, in each direction; None: loopback, not limited."""
    ms: float
    """Median; of every sum or step, the slowest rank's time. More hosts than cores take turns to compute."""
    bytes_sent_per_host: float
    """By the counter of its interface, headers included."""
    exact: bool
    way: str | None
    """What an automatic method chose."""
    over_dense: tuple[float, float, float] | None
    """Time over that of ``dense``, paired by repeat: mean and 95 % interval."""


def rows_of(
    answers: Sequence[Answer],
    *,
    workload: str,
    supports: Supports,
    sparsity: float | None = None,
    hosts: int,
    rate_mbit: float | None,
) -> list[Row]:
    """Rows of one workload; ``sparsity`` None: the answers know it."""
    dense = next((answer for answer in answers if answer.method == "dense"), None)
    rows = []
    for answer in answers:
        if answer.bytes_claimed is not None and answer.bytes_claimed > answer.bytes_sent:
            raise CommError(
                f"bench: {answer.method} says that it sent {answer.bytes_claimed:.0f} bytes, but interfaces "
                f"counted {answer.bytes_sent:.0f}; ranks must talk over the interface GLOO_SOCKET_IFNAME names"
            )
        share = sparsity if sparsity is not None else answer.sparsity
        assert share is not None, "somebody looked"
        rows.append(
            Row(
                method=answer.method,
                workload=workload,
                sparsity=share,
                supports=supports,
                hosts=hosts,
                rate_mbit=rate_mbit,
                ms=statistics.median(time for turn in answer.round_ms for time in turn),
                bytes_sent_per_host=answer.bytes_sent,
                exact=answer.exact,
                way=answer.way,
                over_dense=_over(answer, dense),
            )
        )
    return rows


def _over(answer: Answer, dense: Answer | None) -> tuple[float, float, float] | None:
    if dense is None or dense is answer:
        return None
    return paired_ratios(answer.round_ms, dense.round_ms)
