"""One row of the placement benchmark."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["Row"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """What was predicted and measured of one placement in one setting; None: not of this kind."""

    kind: Literal["bytes", "time", "simulated"]
    data: str
    hosts: int
    rate_mbit: float | None = None
    """Of every link, in each direction."""
    placement: str
    """Or, where simulated, the methods that are on."""
    codec: str
    """``plain``: float32 and raw ids; ``exact``: the same bits, coded where that is predicted to pay, and coded ids;
    ``coded``: within Laconic's bounds."""
    direction: str | None = None
    predicted_bytes: float | None = None
    """Sent per step and rank, of all that is measured."""
    measured_bytes: float | None = None
    predicted_ms: float | None = None
    """Of a step."""
    measured_ms: float | None = None
    """The same: lower quartile of turns."""
    turn_ms: tuple[float, ...] | None = None
    """Mean step of each turn."""
    samples_per_s: float | None = None
    """Of all hosts, as measured."""
    planned_over: tuple[float, float, float] | None = None
    """Step of the plan with the same codec over this one: mean of ratios that are paired by turn, and its 95 % interval."""
