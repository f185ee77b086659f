"""The workload of a step: tables, how often and how small their rows are sent, dense gradients."""

from __future__ import annotations

import math
from dataclasses import dataclass

from laconic.cost.frequencies import Frequencies
from laconic.cost.id_bytes import IdOrder
from laconic.errors import ConfigError

__all__ = ["RowCoding", "TableLoad", "Workload"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RowCoding:
    """How rows or gradients of one table are coded."""

    ratio: float = 1.0
    """Bytes before coding over bytes sent; 1 means exact, which takes no time to encode."""

    bound: float | None = None
    """Error bound that was tuned; None: the run's own."""

    exact: bool = False
    """Whether the plan insists on exactness."""

    lossless: bool = False
    """Whether fewer bytes give the same bits, so that owners may still sum gradients of copies."""

    def __post_init__(self) -> None:
        if not 1 <= self.ratio < math.inf:
            raise ConfigError(f"coding.ratio: expected a finite number >= 1, got {self.ratio!r}")


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class TableLoad:
    """One table and the frequencies of its rows."""

    name: str
    frequencies: Frequencies
    """Frequencies of all rows of the table."""

    correlation: float = 1.0
    """How lookups of a batch are correlated: with c, a batch needs as many distinct rows as c times
    fewer independent lookups would."""

    id_order: IdOrder = "mixed"
    """``ranked`` means that frequent rows have small ids. Such lists of ids take fewer bytes."""

    known: int = 0
    """Number of the hottest rows whose ids are known. Only these can be hot or warm in a plan."""

    forward: RowCoding = RowCoding()
    """How rows are coded."""

    backward: RowCoding = RowCoding()
    """How gradients are coded."""

    @property
    def rows(self) -> int:
        """Number of rows of the table."""
        return self.frequencies.rows

    @property
    def candidates(self) -> int:
        """Number of rows that are looked up and whose ids are known: they can be hot or warm."""
        frequencies = self.frequencies
        return min(self.known, int(frequencies.count_G[frequencies.probability_G > 0].sum()))


@dataclass(frozen=True, eq=False, kw_only=True)
class Workload:
    """All tables, and what a step of training sends and keeps."""

    tables: tuple[TableLoad, ...]
    batch: int
    """Samples of a rank in a step."""

    dim: int
    """Dimensions of every embedding, in float32."""

    state_bytes: int = 4
    """Bytes of a row's optimizer state: 4 for row-wise Adagrad, 0 for SGD."""

    dense_bytes: float = 0.0
    """Bytes of dense gradients as they are sent."""

    dense_codec_s: float = 0.0
    """Seconds that a rank spends in a step to encode and decode dense gradients."""

    coded_ids: bool = True
    """Whether ids are coded; otherwise each takes 8 bytes."""

    hot_every: int = 1
    """Steps between two synchronizations of hot rows; with 1 training is exact."""

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
        """Bytes of a row, a pooled vector or a gradient."""
        return 4 * self.dim

    @property
    def row_bytes(self) -> int:
        """Bytes of a row in memory, with its optimizer state."""
        return self.vector_bytes + self.state_bytes

    @property
    def table_bytes(self) -> int:
        """Bytes of all tables, each stored once."""
        return self.row_bytes * sum(table.rows for table in self.tables)
