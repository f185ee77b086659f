"""The ledger: what traveled, what it would have been, and what it cost.

Bytes are those that leave this rank, per table and direction; a direction's size messages are
counted with it. Times are per direction: all tables are encoded in one call and travel in one
message. ``wire_s`` includes waiting for slower ranks.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

__all__ = ["DIRECTIONS", "Direction", "Entry", "Ledger"]

Direction = Literal["ids", "forward", "backward"]
DIRECTIONS: tuple[Direction, ...] = ("ids", "forward", "backward")


@dataclass(frozen=True, slots=True)
class Entry:
    """One direction of one step."""

    step: int
    before_T: NDArray[np.int64]
    """Bytes of each table's rows or ids, uncompressed."""
    after_T: NDArray[np.int64]
    """Bytes that were sent for them."""
    sizes: int
    """Bytes of the size messages."""
    encode_s: float
    wire_s: float
    decode_s: float


@dataclass
class Account:
    """The sum of one direction's entries since the last reset."""

    before_T: NDArray[np.int64]
    after_T: NDArray[np.int64]
    sizes: int = 0
    encode_s: float = 0.0
    wire_s: float = 0.0
    decode_s: float = 0.0
    steps: int = 0

    def add(self, entry: Entry, steps: int = 1) -> None:
        """Add one step, or something more of a step that is counted."""
        self.before_T += entry.before_T
        self.after_T += entry.after_T
        self.sizes += entry.sizes
        self.encode_s += entry.encode_s
        self.wire_s += entry.wire_s
        self.decode_s += entry.decode_s
        self.steps += steps

    def add_sizes(self, sent: int, wire_s: float) -> None:
        """Add a message of a step that is about rows and has none."""
        self.sizes += sent
        self.wire_s += wire_s

    @property
    def before(self) -> int:
        """Bytes of all tables, uncompressed."""
        return int(self.before_T.sum())

    @property
    def sent(self) -> int:
        """Bytes of all tables and size messages that left this rank."""
        return int(self.after_T.sum()) + self.sizes


@dataclass
class Ledger:
    """Accounts of all directions; each is written by one thread."""

    names: tuple[str, ...]
    """Of the tables."""
    accounts: dict[Direction, Account] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Begin anew; between steps only, when no thread writes."""
        for direction in DIRECTIONS:
            zeros = np.zeros(len(self.names), np.int64)
            self.accounts[direction] = Account(zeros, zeros.copy())

    @classmethod
    def joined(cls, ledgers: Sequence[Ledger]) -> Ledger:
        """Return what ledgers of several groups of tables have counted; they stay as they are."""
        found, first = cls(tuple(name for ledger in ledgers for name in ledger.names)), 0
        for ledger in ledgers:
            found.take_over(deepcopy(ledger), first)
            first += len(ledger.names)
        for direction, account in found.accounts.items():
            account.steps = max(ledger.accounts[direction].steps for ledger in ledgers)
        return found

    def like(self) -> Ledger:
        """Return an empty one for the same tables."""
        return Ledger(self.names)

    def record(self, direction: Direction, entry: Entry) -> None:
        """Enter one direction of one step."""
        self.accounts[direction].add(entry)

    def take_over(self, other: Ledger, first: int) -> None:
        """Add what another ledger has counted of tables from the ``first`` on, and empty it.

        Steps are not added: it is part of steps that are counted here.
        """
        for direction, account in other.accounts.items():
            if not account.sent and not account.steps:
                continue  # another thread may write there
            mine, tables = self.accounts[direction], slice(first, first + len(other.names))
            mine.before_T[tables] += account.before_T
            mine.after_T[tables] += account.after_T
            mine.sizes += account.sizes
            mine.encode_s += account.encode_s
            mine.wire_s += account.wire_s
            mine.decode_s += account.decode_s
        other.reset()

    def total(self, *, dense_before: float, dense_sent: float, reviews: float = 0.0) -> dict[str, float]:
        """Return all bytes that left this rank per step, also those that this ledger does not see.

        ``dense_before`` and ``dense_sent`` are those of dense gradients. ``reviews`` is what was
        sent only to decide how to send. All are bytes per step.
        """
        parts = self.summary()
        before = sum(row["bytes_before"] for row in parts) + dense_before
        sent = sum(row["bytes_sent"] for row in parts) + dense_sent + reviews
        return {"bytes_before": before, "bytes_sent": sent, "ratio": before / sent if sent else 1.0}

    def rows(self) -> list[dict[str, Any]]:
        """One row for every table and direction, for tables and files."""
        return [
            {"table": name, "direction": direction, "before": int(a.before_T[t]), "after": int(a.after_T[t])}
            for direction, a in self.accounts.items()
            for t, name in enumerate(self.names)
        ]

    def summary(self) -> list[dict[str, Any]]:
        """One row for every direction: bytes and milliseconds per step."""
        rows = []
        for direction, a in self.accounts.items():
            steps = max(a.steps, 1)
            times = {"encode": a.encode_s, "wire": a.wire_s, "decode": a.decode_s}
            rows.append(
                {
                    "direction": direction,
                    "steps": a.steps,
                    "bytes_before": a.before / steps,
                    "bytes_sent": a.sent / steps,
                    "ratio": a.before / a.sent if a.sent else 1.0,
                    **{f"{name}_ms": 1e3 * seconds / steps for name, seconds in times.items()},
                }
            )
        return rows
