"""The economy: which tables are worth compressing in which direction, by what was measured.

At every review all ranks hand in what they measured, and all arrive at the same choices. A table
costs::

    seconds = encode + decode + bytes / bandwidth

Nothing of that is taken to hide behind computation. A table changes only if that saves more than a
tenth of what it costs now; for two reviews after a change it takes twice the gain to change the
same table again. So times that are off by up to 5 % take no table there and back: there needs
``new < 0.9 old`` as measured, so truly ``new / old < 0.9 * 1.05 / 0.95 < 1``, and back needs the
contrary.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from laconic.cost.link import CodecCost, Link
from laconic.errors import ConfigError

__all__ = [
    "CHOICES",
    "DIRECTIONS",
    "Choice",
    "Decision",
    "Direction",
    "Economy",
    "Offers",
    "RankCosts",
    "slowest",
]


Choice = Literal["exact", "cast", "bounded"]
"""Float32 as it is, the nearest float16, or the codec of the plan."""
CHOICES: tuple[Choice, ...] = get_args(Choice)

Direction = Literal["forward", "backward"]
DIRECTIONS: tuple[Direction, ...] = get_args(Direction)

Offers = tuple[CodecCost | None, ...]
"""What one table costs in each of ``CHOICES``; None: not offered, for instance where float16 would
not keep a bound that was asked for."""


@dataclass(frozen=True, slots=True)
class RankCosts:
    """What one rank knows of its link, its cores and its rows."""

    link: Link

    forward: tuple[Offers, ...]
    """Offers for rows, table by table; a table that this rank does not send costs nothing."""

    backward: tuple[Offers, ...]
    """Offers for gradients, likewise."""

    def offers(self, direction: Direction) -> tuple[Offers, ...]:
        """Return those of one direction."""
        return self.forward if direction == "forward" else self.backward


def slowest(measurements: Sequence[RankCosts], direction: Direction) -> tuple[float, tuple[Offers, ...]]:
    """Return bytes a second and offers of a rank that is as slow as the slowest in everything."""
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


_MARGIN = 0.1  # share of a table's cost that a change must save
_COOLDOWN = 2


@dataclass(frozen=True, slots=True)
class Decision:
    """One table that changes in one direction."""

    step: int
    direction: Direction
    table: str
    old: Choice
    new: Choice
    reason: str
    """A cause, a colon and the table's figures."""


@dataclass(slots=True)
class _Standing:
    """How one table travels in one direction."""

    choice: Choice
    cause: str = "as asked for"
    cooldown: int = 0
    """Reviews for which a change takes twice the gain."""


class Economy:
    """The choices of all tables in both directions.

    Ranks that review the same measurements make the same choices.
    """

    def __init__(self, names: tuple[str, ...], first: Choice = "bounded") -> None:
        if first not in CHOICES:
            raise ConfigError(f"economy.first: expected one of {', '.join(CHOICES)}, got {first!r}")
        self.names = names
        self._tables = {direction: [_Standing(first) for _ in names] for direction in DIRECTIONS}

    def choice(self, direction: Direction) -> tuple[Choice, ...]:
        """Return what each table travels as."""
        return tuple(table.choice for table in self._tables[direction])

    def review(self, step: int, measurements: Sequence[RankCosts]) -> list[Decision]:
        """Take what the ranks measured, in their order; returns what changes from this step on."""
        if not measurements:
            raise ConfigError("economy: expected the measurement of every rank, got none")
        decisions = []
        for direction in DIRECTIONS:
            for measurement in measurements:
                self._check(measurement.offers(direction), direction)
            decisions += self._decide(step, direction, *slowest(measurements, direction))
        self._enter(decisions)
        return decisions

    def summary(self) -> str:
        """One line per direction: how many tables are not compressed, and why."""
        return "\n".join(f"{direction}: {self._summary(direction)}" for direction in DIRECTIONS)

    def state(self) -> dict[str, Any]:
        """Return all that reviews have left behind, as JSON can carry it."""
        standings: dict[str, Any] = {
            direction: [[table.choice, table.cause, table.cooldown] for table in tables]
            for direction, tables in self._tables.items()
        }
        return {"names": list(self.names), **standings}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue exactly where the state was taken."""
        if tuple(state["names"]) != self.names:
            raise ConfigError(
                f"economy: expected the state of tables {', '.join(self.names)}, got that of "
                f"{', '.join(state['names'])}; the checkpoint is of another model"
            )
        self._tables = {
            direction: [_Standing(*table) for table in state[direction]] for direction in DIRECTIONS
        }

    def _check(self, offers_T: Sequence[Offers], direction: Direction) -> None:
        if len(offers_T) != len(self.names):
            raise ConfigError(f"economy: expected costs of {len(self.names)} tables, got {len(offers_T)}")
        for name, offers, table in zip(self.names, offers_T, self._tables[direction], strict=True):
            if len(offers) != len(CHOICES):
                raise ConfigError(
                    f"economy: expected a cost or None for each of {', '.join(CHOICES)} of table {name!r}, "
                    f"got {len(offers)} entries"
                )
            for needed in ("exact", table.choice):
                if offers[CHOICES.index(needed)] is None:
                    raise ConfigError(
                        f"economy: expected the cost of {needed!r} for table {name!r} {direction}, got None; "
                        "what is in use and what it came from must be offered"
                    )

    def _decide(
        self, step: int, direction: Direction, bytes_per_s: float, offers_T: Sequence[Offers]
    ) -> list[Decision]:
        """Return the moves that pay, those that gain most first."""
        moves = []
        for name, table, offers in zip(self.names, self._tables[direction], offers_T, strict=True):
            offered = {choice: cost for choice, cost in zip(CHOICES, offers, strict=True) if cost is not None}
            seconds = {choice: cost.cpu_s + cost.bytes_sent / bytes_per_s for choice, cost in offered.items()}
            old = table.choice
            new = min(offered, key=lambda choice: (seconds[choice], offered[choice].bytes_sent))
            gain = seconds[old] - seconds[new]
            if gain > (2 * _MARGIN if table.cooldown else _MARGIN) * seconds[old]:
                reason = _reason(bytes_per_s, (old, offered[old]), (new, offered[new]))
                moves.append((gain, Decision(step, direction, name, old, new, reason)))
        return [decision for _, decision in sorted(moves, key=lambda move: -move[0])]

    def _enter(self, decisions: Sequence[Decision]) -> None:
        """Let the decisions of one review take effect."""
        for tables in self._tables.values():
            for table in tables:
                table.cooldown = max(0, table.cooldown - 1)
        for decision in decisions:
            cause = decision.reason.partition(":")[0]
            t = self.names.index(decision.table)
            self._tables[decision.direction][t] = _Standing(decision.new, cause, _COOLDOWN)

    def _summary(self, direction: Direction) -> str:
        kinds = Counter((table.choice, table.cause) for table in self._tables[direction])
        parts = [
            f"{words} for {kinds[kind]} of {len(self.names)} tables: {kind[1]}"
            for choice, words in (("exact", "compression off"), ("cast", "float16"))
            for kind in sorted(kinds)
            if kind[0] == choice
        ]
        return "; ".join(parts) or f"compression on for all {len(self.names)} tables"


def _reason(bytes_per_s: float, old: tuple[Choice, CodecCost], new: tuple[Choice, CodecCost]) -> str:
    """Say why in a sentence, with the figures of the one that sends less."""
    (larger, large), (smaller, small) = sorted((old, new), key=lambda side: -side[1].bytes_sent)
    cpu_ms = 1e3 * (small.cpu_s - large.cpu_s)
    wire_ms = 1e3 * (large.bytes_sent - small.bytes_sent) / bytes_per_s
    cause = "the codec is faster than the link" if smaller == new[0] else "the link is faster than the codec"
    return (
        f"{cause}: {smaller} takes {cpu_ms:.3g} ms more than {larger} to encode and decode, "
        f"and saves {wire_ms:.3g} ms on the wire"
    )
