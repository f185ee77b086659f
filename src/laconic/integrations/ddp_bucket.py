"""What is known of the parameters that DDP sends together, and what was sent of them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from laconic.reduce import Choice, LayerMemory

__all__ = ["Account", "Bucket"]


@dataclass(slots=True)
class Account:
    """What was sent of the parameters of a bucket, since the start or the last ``begin``."""

    name: str
    before: int = 0
    """Bytes that a ring all-reduce would have sent, so far."""
    sent: int = 0
    """Bytes that were sent, those that DDP itself sends for a bypassed bucket included."""
    messages: int = 0
    """Number of times that the bucket was summed."""
    bypassed: Counter[str] = field(default_factory=Counter)
    """Number of times that it traveled as DDP would send it, by reason."""


@dataclass(slots=True)
class Bucket:
    """What is known of the parameters that DDP sends together."""

    account: Account
    ring: int
    """Bytes that a rank sends of it when DDP sums it along a ring."""
    chosen: list[bool]
    """Whether each parameter travels by the method."""
    parameters: list[Tensor]
    """The chosen parameters."""
    layers: Any
    """Where its chosen parameters begin, side by side, and end."""
    memory: LayerMemory | None
    """What its chosen parameters hold back, where large entries go first."""
    choice: Choice | None = None
    """How it travels, once somebody looked."""
    looked: int = 0
    """Step of the last look."""
