"""One row of the adaptation benchmark."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.adaptation.parts import Parts
from benchmarks.adaptation.trial import Outcome

__all__ = ["Row", "accuracy_rows"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """What was measured of one policy; None: not measured in rows of this kind."""

    data: str
    policy: str
    decay: str = "none"
    ratio_forward: float | None = None
    """Bytes of plain pooled float32 rows and raw ids over those sent for rows and ids."""
    ratio_backward: float | None = None
    bytes_sent: float | None = None
    """Rows, ids and gradients of all ranks, per step."""
    auc_delta: float | None = None
    """Mean of paired differences to exact communication."""
    auc_delta_sd: float | None = None
    """Standard deviation of the pairs."""
    log_loss_delta: float | None = None
    pairs: int = 0
    rate_mbit: float | None = None
    """Of every link; None where no time was measured, or loopback."""
    step_ms: float | None = None
    ratio_to_best: tuple[float, float, float] | None = None
    """Step time over that of the fastest other: mean of paired ratios and its 95 % interval."""
    parts_ms: Parts | None = None
    """What the step is made of."""
    bypassed_tables: int | None = None
    """Directions of tables that the economy does not compress."""


def accuracy_rows(outcomes: Sequence[Outcome]) -> list[Row]:
    """One row for each data set and policy, paired with exact runs of the same seed."""
    exact = {(o.trial.name, o.trial.seed): o for o in outcomes if o.trial.policy == "exact"}
    rows = []
    for key in dict.fromkeys((o.trial.name, o.trial.policy, o.trial.decay) for o in outcomes):
        mine = [o for o in outcomes if (o.trial.name, o.trial.policy, o.trial.decay) == key]
        aucs = [o.auc - exact[o.trial.name, o.trial.seed].auc for o in mine]
        losses = [o.log_loss - exact[o.trial.name, o.trial.seed].log_loss for o in mine]
        rows.append(
            Row(
                data=key[0],
                policy=key[1],
                decay=key[2],
                ratio_forward=statistics.fmean(o.ratio_forward for o in mine),
                ratio_backward=statistics.fmean(o.ratio_backward for o in mine),
                bytes_sent=statistics.fmean(o.bytes_sent for o in mine),
                auc_delta=statistics.fmean(aucs),
                auc_delta_sd=statistics.stdev(aucs) if len(aucs) > 1 else None,
                log_loss_delta=statistics.fmean(losses),
                pairs=len(mine),
            )
        )
    return rows
