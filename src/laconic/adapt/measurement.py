"""What each rank measured, and what that means for all: a step waits for its slowest rank.

Every rank hands in one ``Measurement``; ``slowest`` makes of them the one problem that all ranks solve.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from laconic.cost.link import CodecCost, Link
from laconic.errors import ConfigError

__all__ = ["CHOICES", "DIRECTIONS", "Choice", "Costs", "Direction", "Measurement", "Offers", "slowest"]

Choice = Literal["exact", "cast", "bounded"]
"""Float32 as it is, the nearest float16, or the codec of the plan."""
CHOICES: tuple[Choice, ...] = get_args(Choice)

Direction = Literal["forward", "backward"]
DIRECTIONS: tuple[Direction, ...] = get_args(Direction)

Offers = tuple[CodecCost | None, ...]
"""What one table costs in each of ``CHOICES``; None: not offered, for instance where float16 would not
keep a bound that was asked for."""


@dataclass(frozen=True, slots=True)
class Costs:
    """One direction of a step."""

    tables: tuple[Offers, ...]
    """In the order of the tables; one that this rank does not send costs nothing."""

    overlap_s: float
    """Computation that goes on while bytes travel."""

    def __post_init__(self) -> None:
        if not 0 <= self.overlap_s < math.inf:
            raise ConfigError(
                f"costs.overlap_s: expected a finite number >= 0, got {self.overlap_s!r}; 0 hides nothing"
            )


@dataclass(frozen=True, slots=True)
class Measurement:
    """What one rank knows of its link, its cores and its rows."""

    link: Link
    forward: Costs
    backward: Costs

    def costs(self, direction: Direction) -> Costs:
        """Those of one direction."""
        return self.forward if direction == "forward" else self.backward


def slowest(measurements: Sequence[Measurement], direction: Direction) -> tuple[Link, Costs]:
    """Return the link and costs of a rank that is as slow as any in every respect.

    Tables that different ranks own are sent at the same time, so the sum over tables of the most that any
    rank sends exceeds what any rank sends. Latency and overlap, which come once per rank and not once per
    table, are stretched by as much, so that they meet a sum on its own scale.
    """
    ranks = [measurement.costs(direction) for measurement in measurements]
    tables = tuple(_slowest_offers(offers) for offers in zip(*(costs.tables for costs in ranks), strict=True))
    most = max(_exact_bytes(costs.tables) for costs in ranks)
    stretch = _exact_bytes(tables) / most if most else 1.0
    link = Link(
        stretch * max(measurement.link.latency_s for measurement in measurements),
        min(measurement.link.bytes_per_s for measurement in measurements),
    )
    return link, Costs(tables, stretch * min(costs.overlap_s for costs in ranks))


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


def _exact_bytes(tables: Sequence[Offers]) -> float:
    """Bytes of all rows as they are: they follow from counts alone, without noise."""
    exact = CHOICES.index("exact")
    costs = [offers[exact] for offers in tables]
    return sum(cost.bytes_sent for cost in costs if cost is not None)
