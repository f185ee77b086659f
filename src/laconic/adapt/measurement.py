"""What each rank measured, and what that means for all: a step waits for its slowest rank.

Every rank hands in one ``Measurement``; ``slowest`` makes of them the one problem that all ranks solve.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from laconic.cost.link import CodecCost, Link
from laconic.errors import ConfigError

__all__ = ["CHOICES", "DIRECTIONS", "Choice", "Direction", "Measurement", "Offers", "slowest"]

Choice = Literal["exact", "cast", "bounded"]
"""Float32 as it is, the nearest float16, or the codec of the plan."""
CHOICES: tuple[Choice, ...] = get_args(Choice)

Direction = Literal["forward", "backward"]
DIRECTIONS: tuple[Direction, ...] = get_args(Direction)

Offers = tuple[CodecCost | None, ...]
"""What one table costs in each of ``CHOICES``; None: not offered, for instance where float16 would not
keep a bound that was asked for."""


@dataclass(frozen=True, slots=True)
class Measurement:
    """What one rank knows of its link, its cores and its rows."""

    link: Link

    forward: tuple[Offers, ...]
    """Of rows, in the order of the tables; one that this rank does not send costs nothing."""

    backward: tuple[Offers, ...]
    """Of gradients, likewise."""

    def offers(self, direction: Direction) -> tuple[Offers, ...]:
        """Return those of one direction."""
        return self.forward if direction == "forward" else self.backward


def slowest(measurements: Sequence[Measurement], direction: Direction) -> tuple[float, tuple[Offers, ...]]:
    """Return the bytes a second and the offers of a rank that is as slow as any in every respect."""
    ranks = [measurement.offers(direction) for measurement in measurements]
    bytes_per_s = min(measurement.link.bytes_per_s for measurement in measurements)
    return bytes_per_s, tuple(_slowest_offers(offers) for offers in zip(*ranks, strict=True))


def _slowest_offers(ranks: Sequence[Offers]) -> Offers:
    offers: list[CodecCost | None] = []
    for choice, costs in zip(CHOICES, zip(*ranks, strict=True), strict=True):
        offered = [cost for cost in costs if cost is not None]
        if offered and len(offered) < len(ranks):
            raise ConfigError(
                f"economy: expected every rank to offer {choice!r} for a table or none, "
                f"got {len(offered)} of {len(ranks)} ranks; give all ranks the same plan"
            )
        offers.append(
            CodecCost(
                max(cost.encode_s for cost in offered),
                max(cost.decode_s for cost in offered),
                max(cost.bytes_sent for cost in offered),
            )
            if offered
            else None
        )
    return tuple(offers)
