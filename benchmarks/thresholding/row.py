"""Rows of the benchmark: the mean over pairs, a split run against the plain one of the same seed."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.thresholding.trial import PLAIN, Outcome

__all__ = ["Row", "rows_of"]


@dataclass(frozen=True, slots=True)
class Row:
    """One case on one data set."""

    data: str
    case: str
    form: str
    workers: int
    pairs: int
    log_loss: float
    loss_change: float
    """Mean of (loss / plain loss - 1) over pairs."""
    loss_change_se: float | None
    """Its standard error; None for one pair."""
    auc_change: float
    kept: float
    ratio: float


def rows_of(outcomes: Sequence[Outcome]) -> list[Row]:
    """Pair outcomes with plain ones of the same data and seed; those without are left out."""
    plain = {(o.trial.data_name, o.trial.seed): o for o in outcomes if o.trial.case == PLAIN}
    groups: dict[tuple[str, str, str, int], list[Outcome]] = {}
    for o in outcomes:
        if (o.trial.data_name, o.trial.seed) in plain and o.trial.case != PLAIN:
            key = (o.trial.data_name, o.trial.case.name, o.trial.case.form, o.trial.case.workers)
            groups.setdefault(key, []).append(o)
    return [_row(key, members, plain) for key, members in groups.items()]


def _row(
    key: tuple[str, str, str, int], members: list[Outcome], plain: dict[tuple[str, int], Outcome]
) -> Row:
    pairs = [(o, plain[o.trial.data_name, o.trial.seed]) for o in members]
    changes = [ours.log_loss / theirs.log_loss - 1 for ours, theirs in pairs]
    error = statistics.stdev(changes) / math.sqrt(len(changes)) if len(changes) > 1 else None
    return Row(
        *key,
        pairs=len(pairs),
        log_loss=statistics.fmean(ours.log_loss for ours, _ in pairs),
        loss_change=statistics.fmean(changes),
        loss_change_se=error,
        auc_change=statistics.fmean(ours.auc - theirs.auc for ours, theirs in pairs),
        kept=statistics.fmean(ours.kept for ours, _ in pairs),
        ratio=statistics.harmonic_mean([ours.ratio for ours, _ in pairs]),
    )
