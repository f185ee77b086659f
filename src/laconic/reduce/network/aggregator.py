"""What every aggregator does, in the kernel or in user space: it knows jobs and adds for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

__all__ = ["MOST_JOBS", "Aggregator", "Counters"]

MOST_JOBS = 8
"""Jobs at the same time; memory for all of them, 1.5 MB each, is taken at the start."""


@dataclass(frozen=True, slots=True)
class Counters:
    """What became of the packets that arrived, in the order of packet.h."""

    packets: int = 0
    """All that arrived for the aggregator."""
    malformed: int = 0
    """Dropped: not a packet of this protocol, or of a worker that the job does not have."""
    unknown_jobs: int = 0
    """Dropped: of a job that nobody told us of."""
    stale: int = 0
    """Dropped: of a block that is over, or too far ahead."""
    repeated: int = 0
    """Arrived before: answered to their sender, not added again."""
    out_of_step: int = 0
    """Workers disagreed on what a block is."""
    results: int = 0
    """Blocks that are complete."""
    unsent: int = 0
    """Answers that could not be sent; workers ask again."""

    @classmethod
    def of(cls, numbers: Sequence[int]) -> Counters:
        """Make counters of numbers in the order of packet.h."""
        return cls(*map(int, numbers))


class Aggregator(Protocol):
    """Adds what workers of registered jobs send, and sends back the sum."""

    def register(self, job: int, workers: int) -> None:
        """Let a job begin; PlanError where there is no room for it, or one of that name."""
        ...

    def release(self, job: int) -> None:
        """Forget a job: its packets are unknown from now on. An unknown one is no error."""
        ...

    def counters(self) -> Counters:
        """Say what became of the packets so far."""
        ...

    def close(self) -> None:
        """Stop answering; a second call does nothing."""
        ...
