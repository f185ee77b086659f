"""Batches that will be started later, whose ids, and perhaps some rows, travel already."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import dataclass

from laconic.errors import PlanError
from laconic.exchange.id_exchange import Routed
from laconic.exchange.look_ahead import Early
from laconic.lookups import Lookups

__all__ = ["Coming", "check_order"]


@dataclass(frozen=True, slots=True, eq=False)
class Coming:
    """A batch whose ids were sent."""

    lookups: Lookups
    routed: Future[Routed]
    early: Future[Early | None] | None = None
    """Rows that were sent with them, if any were."""


def check_order(expected: Lookups, started: Lookups) -> None:
    """Raise if another batch is started than the one that was prefetched first."""
    if expected is not started:
        raise PlanError(
            "embeddings: another batch was prefetched; start the same Lookups objects in the order of prefetch, "
            "or discard_prefetched()"
        )
