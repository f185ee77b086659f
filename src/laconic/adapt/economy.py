"""The economy: which tables are worth compressing in which direction, by what was measured.

At every review all ranks hand in what they measured, and all arrive at the same choices. A table changes
only where that pays well enough (``hysteresis``); for two reviews after a change it takes twice the gain
to change the same table again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from laconic.adapt.hysteresis import MARGIN, paying_moves
from laconic.adapt.measurement import CHOICES, DIRECTIONS, Choice, Costs, Direction, Measurement, slowest
from laconic.cost.link import CodecCost, Link, cheapest
from laconic.errors import ConfigError

__all__ = ["Decision", "Economy"]

_WARY_REVIEWS = 2


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
    wary: int = 0
    """Reviews for which a change takes twice the gain."""


class Economy:
    """Choices of all tables in both directions; the same on all ranks that review the same measurements."""

    def __init__(self, names: tuple[str, ...], first: Choice = "bounded") -> None:
        if first not in CHOICES:
            raise ConfigError(f"economy.first: expected one of {', '.join(CHOICES)}, got {first!r}")
        self.names = names
        self._tables = {direction: [_Standing(first) for _ in names] for direction in DIRECTIONS}

    def choice(self, direction: Direction) -> tuple[Choice, ...]:
        """Return what each table travels as."""
        return tuple(table.choice for table in self._tables[direction])

    def review(self, step: int, measurements: Sequence[Measurement]) -> list[Decision]:
        """Take what the ranks measured, in their order; returns what changes from this step on."""
        if not measurements:
            raise ConfigError("economy: expected the measurement of every rank, got none")
        decisions = []
        for direction in DIRECTIONS:
            for measurement in measurements:
                self._check(measurement.costs(direction), direction)
            decisions += self._decide(step, direction, *slowest(measurements, direction))
        self._enter(decisions)
        return decisions

    def summary(self) -> str:
        """One line per direction: how many tables are not compressed, and why."""
        return "\n".join(f"{direction}: {self._summary(direction)}" for direction in DIRECTIONS)

    def state(self) -> dict[str, Any]:
        """Return all that reviews have left behind, as JSON can carry it."""
        standings: dict[str, Any] = {
            direction: [[table.choice, table.cause, table.wary] for table in tables]
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

    def _check(self, costs: Costs, direction: Direction) -> None:
        if len(costs.tables) != len(self.names):
            raise ConfigError(f"economy: expected costs of {len(self.names)} tables, got {len(costs.tables)}")
        for name, offers, table in zip(self.names, costs.tables, self._tables[direction], strict=True):
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

    def _decide(self, step: int, direction: Direction, link: Link, costs: Costs) -> list[Decision]:
        tables = self._tables[direction]
        offered = [
            {choice: cost for choice, cost in zip(CHOICES, offers, strict=True) if cost is not None}
            for offers in costs.tables
        ]
        best = cheapest(link, [list(offers.values()) for offers in offered], costs.overlap_s)
        aims = [list(offers)[index] for offers, index in zip(offered, best, strict=True)]
        now = [offers[table.choice] for offers, table in zip(offered, tables, strict=True)]
        wanted = [offers[aim] for offers, aim in zip(offered, aims, strict=True)]
        shares = [2 * MARGIN if table.wary else MARGIN for table in tables]
        decisions = []
        for t in paying_moves(link, now, wanted, costs.overlap_s, shares):
            old, new = tables[t].choice, aims[t]
            reason = _reason(link, (old, now[t]), (new, wanted[t]))
            decisions.append(Decision(step, direction, self.names[t], old, new, reason))
        return decisions

    def _enter(self, decisions: Sequence[Decision]) -> None:
        """Let the decisions of one review take effect."""
        for tables in self._tables.values():
            for table in tables:
                table.wary = max(0, table.wary - 1)
        for decision in decisions:
            cause = decision.reason.partition(":")[0]
            t = self.names.index(decision.table)
            self._tables[decision.direction][t] = _Standing(decision.new, cause, _WARY_REVIEWS)

    def _summary(self, direction: Direction) -> str:
        kinds = Counter((table.choice, table.cause) for table in self._tables[direction])
        parts = [
            f"{words} for {kinds[kind]} of {len(self.names)} tables: {kind[1]}"
            for choice, words in (("exact", "compression off"), ("cast", "float16"))
            for kind in sorted(kinds)
            if kind[0] == choice
        ]
        return "; ".join(parts) or f"compression on for all {len(self.names)} tables"


def _reason(link: Link, old: tuple[Choice, CodecCost], new: tuple[Choice, CodecCost]) -> str:
    """Say why in a sentence, with the figures of the one that sends less."""
    (larger, large), (smaller, small) = sorted((old, new), key=lambda side: -side[1].bytes_sent)
    cpu_ms = 1e3 * (small.cpu_s - large.cpu_s)
    wire_ms = 1e3 * (large.bytes_sent - small.bytes_sent) / link.bytes_per_s
    figures = (
        f"{smaller} takes {cpu_ms:.3g} ms more than {larger} to encode and decode, "
        f"and saves {wire_ms:.3g} ms on the wire"
    )
    if smaller == new[0]:
        return f"the codec is faster than the link: {figures}"
    if cpu_ms > wire_ms:
        return f"the link is faster than the codec: {figures}"
    return f"computation hides the wire: {figures}"
