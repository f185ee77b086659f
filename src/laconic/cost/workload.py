"""What is to be placed: tables, how often and how small their rows travel, and the dense part."""

from __future__ import annotations

import math
from dataclasses import dataclass

from laconic.cost.frequencies import Frequencies
from laconic.cost.id_bytes import IdOrder
from laconic.errors import ConfigError

__all__ = ["RowCoding", "TableLoad", "Workload"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RowCoding:
    """What one direction of a table travels as."""

    ratio: float = 1.0
    """Bytes before / bytes sent; 1 is exact, and takes no time to encode."""

    bound: float | None = None
    """Error bound that was tuned; None: as the run says."""

    exact: bool = False
    """The plan insists on exactness."""

    lossless: bool = False
    """Fewer bytes, and the same bits: owners may still sum gradients of copies."""

    def __post_init__(self) -> None:
        if not 1 <= self.ratio < math.inf:
            raise ConfigError(f"coding.ratio: expected a finite number >= 1, got {self.ratio!r}")


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class TableLoad:
    """One table and what is looked up in it."""

    name: str
    frequencies: Frequencies
    """Of all its rows."""

    correlation: float = 1.0
    """A batch needs as many distinct rows as so many times fewer independent lookups."""

    id_order: IdOrder = "mixed"
    """``ranked``: the more frequent a row, the smaller its id; such lists of ids are coded in fewer
    bytes."""

    known: int = 0
    """Hottest rows whose ids are known; only these can be hot or warm ones of a plan."""

    forward: RowCoding = RowCoding()
    """Rows."""

    backward: RowCoding = RowCoding()
    """Gradients."""

    @property
    def rows(self) -> int:
        """Of the table."""
        return self.frequencies.rows

    @property
    def candidates(self) -> int:
        """Number of rows that are looked up and whose ids are known: they can be hot or warm."""
        frequencies = self.frequencies
        return min(self.known, int(frequencies.count_G[frequencies.probability_G > 0].sum()))


@dataclass(frozen=True, eq=False, kw_only=True)
class Workload:
    """All tables, and a step."""

    tables: tuple[TableLoad, ...]
    batch: int
    """Samples per rank and step."""

    dim: int
    """Of every embedding, in float32."""

    state_bytes: int = 4
    """Optimizer state of a row: 4 for row-wise Adagrad, 0 for SGD."""

    dense_bytes: float = 0.0
    """Dense gradients as they travel."""

    dense_codec_s: float = 0.0
    """What a rank computes in a step to send them so."""

    coded_ids: bool = True
    """Ids are coded; otherwise eight bytes each."""

    hot_every: int = 1
    """Steps between two synchronizations of hot rows; 1: training is exact."""

    def __post_init__(self) -> None:
        if not self.tables:
            raise ConfigError("workload: expected at least one table, got none")
        names = [table.name for table in self.tables]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ConfigError(f"workload: table names must differ, got {twice[0]!r} twice")
        for name, least in (("batch", 1), ("dim", 1), ("state_bytes", 0), ("hot_every", 1)):
            if getattr(self, name) < least:
                raise ConfigError(f"workload.{name}: expected at least {least}, got {getattr(self, name)!r}")
        for name in ("dense_bytes", "dense_codec_s"):
            if not 0 <= getattr(self, name) < math.inf:
                raise ConfigError(
                    f"workload.{name}: expected a finite number >= 0, got {getattr(self, name)!r}"
                )

    @property
    def vector_bytes(self) -> int:
        """A row, or a pooled vector, or a gradient."""
        return 4 * self.dim

    @property
    def row_bytes(self) -> int:
        """What a row takes in memory."""
        return self.vector_bytes + self.state_bytes

    @property
    def table_bytes(self) -> int:
        """What all tables take, once."""
        return self.row_bytes * sum(table.rows for table in self.tables)
