"""One row of the training benchmark."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["Row"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """What was measured of one method in one setting; None: not measured in rows of this kind."""

    kind: Literal["timing", "accuracy", "bytes"]
    data: str
    method: str
    rate_mbit: float | None = None
    """Of every link, in each direction; None: not limited."""
    hosts: int
    seed: int | None = None
    profile_matched: bool = False
    """The rate is the one at which plain communicates for 85.5 % of its step."""
    step_ms: float | None = None
    """Median, on rank 0."""
    communication_share: float | None = None
    """Part of a step beyond that of the same batch on one rank with nothing sent."""
    bytes_forward: float
    """Sent per step and rank, as all bytes."""
    bytes_backward: float
    bytes_ids: float
    bytes_dense: float
    auc: float | None = None
    log_loss: float | None = None
