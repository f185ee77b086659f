"""Rows of a table that are treated alike: how often they are needed, who holds them, what they
become on the wire.

A *holding* says where rows are, for any system: one or several copies of all of them, each copy
dealt to devices in given shares without regard to frequency (by id, so that no device gets the hot
ones), and the copy that each device reads from. All copies are kept equal: a gradient goes to
whoever holds the row in each of them. A table with hot rows that are everywhere is two parts. Shape
legend: ``C`` copies, ``N`` devices.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from laconic.cost.frequencies import Frequencies
from laconic.cost.id_bytes import IdOrder
from laconic.errors import PlanError

__all__ = ["Holding", "Part", "holding_of"]

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Holding:
    """Where rows are."""

    share_CN: Floats
    """Of each copy's rows, what each device holds; every copy adds up to 1."""

    reads_N: NDArray[np.int64]
    """Copy that each device reads from."""

    def __post_init__(self) -> None:
        share_CN, reads_N = np.asarray(self.share_CN, np.float64), np.asarray(self.reads_N, np.int64)
        object.__setattr__(self, "share_CN", share_CN)
        object.__setattr__(self, "reads_N", reads_N)
        if share_CN.ndim != 2 or reads_N.shape != share_CN.shape[1:]:
            raise PlanError(
                f"holding: expected shares of copies x devices and a copy for each device, got {share_CN.shape} and {reads_N.shape}"
            )
        if not ((share_CN >= 0).all() and np.allclose(share_CN.sum(axis=1), 1.0)):
            raise PlanError(f"holding: expected shares >= 0 that add up to 1 in each copy, got {share_CN!r}")
        if reads_N.size and not (reads_N.min() >= 0 and reads_N.max() < len(share_CN)):
            raise PlanError(
                f"holding: expected one of {len(share_CN)} copies for each device, got {reads_N!r}"
            )

    @classmethod
    def whole(cls, ranks: int, owner: int) -> Self:
        """All rows on one device."""
        if not 0 <= owner < ranks:
            raise PlanError(f"holding: owner {owner} is not one of {ranks} devices")
        return cls(np.eye(ranks)[owner : owner + 1], np.zeros(ranks, np.int64))

    @classmethod
    def dealt(cls, ranks: int, share_N: Any = None) -> Self:
        """One copy, dealt to all devices; equally, or in these proportions."""
        share = np.ones(ranks) if share_N is None else np.asarray(share_N, np.float64)
        if share.shape != (ranks,) or not (share >= 0).all() or not 0 < share.sum() < math.inf:
            raise PlanError(
                f"holding: expected {ranks} proportions >= 0, some of them positive, got {share!r}"
            )
        return cls((share / share.sum())[None], np.zeros(ranks, np.int64))

    @classmethod
    def everywhere(cls, ranks: int) -> Self:
        """Put a copy on every device."""
        return cls(np.eye(ranks), np.arange(ranks))

    @property
    def ranks(self) -> int:
        """N."""
        return len(self.reads_N)

    @property
    def served_NN(self) -> Floats:
        """Of the rows that each device (row) needs, the share it reads from each."""
        return self.share_CN[self.reads_N]

    @property
    def updated_NN(self) -> Floats:
        """Share of each device's (row's) gradients that it sends to each; a row adds up to C."""
        return np.broadcast_to(self.share_CN.sum(axis=0), (self.ranks, self.ranks))

    @property
    def held_N(self) -> Floats:
        """Share of the rows that each device has room for."""
        held: Floats = self.share_CN.sum(axis=0)
        return held


@dataclass(frozen=True, eq=False, kw_only=True)
class Part:
    """Rows of one table, and what becomes of them."""

    table: str
    """Name of the table."""

    frequencies: Frequencies
    """Of these rows."""

    holding: Holding
    """Where they are."""

    dim: int
    """Numbers in a row."""

    send: Literal["rows", "pooled"] = "rows"
    """``rows``: each distinct row once for each device that needs it. ``pooled``: one vector for
    each sample."""

    forward_row_bytes: float | None = None
    """Of a row or vector on the wire; None: as it is, four bytes a number."""

    backward_row_bytes: float | None = None
    """Of a gradient; likewise."""

    correlation: float = 1.0
    """Of the lookups in a batch; ``distinct`` explains it."""

    id_order: IdOrder = "ranked"
    """Whether ids are ranked by frequency, or anything."""

    def __post_init__(self) -> None:
        where = f"part of table {self.table!r}"
        if self.dim < 1 or self.send not in ("rows", "pooled") or self.id_order not in ("ranked", "mixed"):
            raise PlanError(
                f"{where}: expected dim >= 1, send 'rows' or 'pooled', id_order 'ranked' or 'mixed', got "
                f"{self.dim!r}, {self.send!r} and {self.id_order!r}"
            )
        for name in ("forward_row_bytes", "backward_row_bytes"):
            value = getattr(self, name)
            if value is not None and not 0 <= value < math.inf:
                raise PlanError(f"{where}: expected {name} as a finite number >= 0, got {value!r}")
        if not 0 < self.correlation < math.inf:
            raise PlanError(f"{where}: expected a correlation > 0, got {self.correlation!r}")

    @property
    def forward_bytes(self) -> float:
        """Of a row on the wire."""
        return 4.0 * self.dim if self.forward_row_bytes is None else self.forward_row_bytes

    @property
    def backward_bytes(self) -> float:
        """Of a gradient on the wire."""
        return 4.0 * self.dim if self.backward_row_bytes is None else self.backward_row_bytes

    def memory_N(self, state_bytes: float = 4.0) -> Floats:
        """Bytes on each device, with so many for the optimizer's state of a row."""
        memory: Floats = self.holding.held_N * self.frequencies.rows * (4.0 * self.dim + state_bytes)
        return memory


def holding_of(sharding: str, ranks: int, owner: int = 0) -> Holding:
    """Where rows are under ``sharding`` of a ``Table``; ``owner`` has a whole one."""
    if sharding == "table":
        return Holding.whole(ranks, owner)
    if sharding == "row":
        return Holding.dealt(ranks)
    if sharding == "replicated":
        return Holding.everywhere(ranks)
    raise PlanError(f"holding: no such sharding {sharding!r} (known: table, row, replicated)")
