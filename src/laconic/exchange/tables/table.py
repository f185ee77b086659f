"""An embedding table, and where its rows are."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Literal, get_args

from laconic.errors import ConfigError

__all__ = ["Table"]

Pooling = Literal["sum", "mean"]
Sharding = Literal["table", "row", "replicated"]
Send = Literal["rows", "pooled"]


@dataclass(frozen=True, slots=True)
class Table:
    """One table; the order of tables is the order of lookups.

    >>> from laconic import Table
    >>> Table("user", rows=50_000, dim=32, sharding="row").dim
    32
    """

    name: str

    rows: int
    """Number of rows; ids are below it."""

    dim: int = 16
    """Dimensions of a row."""

    _: KW_ONLY

    pooling: Pooling = "sum"
    """What a bag of rows becomes."""

    sharding: Sharding = "table"
    """``table``: whole, on one rank. ``row``: row i on rank (i + table's number) mod ranks, so that
    neither the hot rows of one table nor those of all tables meet on one rank; ids are often ranked
    by frequency, and ranges would do that. ``replicated``: on every rank, for small tables."""

    send: Send = "rows"
    """``rows``: each distinct row once per destination, pooled by the requester. ``pooled``: the
    owner pools first, one vector for every sample, as in the DLRM paper; better for long bags."""

    owner: int | None = None
    """Rank that holds a whole table; None: tables are spread so that ranks get equal work."""

    cold: bool = False
    """Its rows and their optimizer state are in a memory-mapped file, so it may be larger than
    memory."""

    def __post_init__(self) -> None:
        where = f"table {self.name!r}"
        if not 1 <= self.rows < 2**40:
            raise ConfigError(f"{where}: expected 1 to 2^40 rows, got {self.rows!r}")
        if self.dim < 1:
            raise ConfigError(f"{where}: expected at least 1 dimension, got {self.dim!r}")
        for field, kinds in (("pooling", Pooling), ("sharding", Sharding), ("send", Send)):
            if getattr(self, field) not in get_args(kinds):
                known = ", ".join(get_args(kinds))
                raise ConfigError(f"{where}: no such {field} {getattr(self, field)!r} (known: {known})")
        if self.owner is not None and self.sharding != "table":
            raise ConfigError(
                f"{where}: only a whole table has an owner, got owner {self.owner} and sharding {self.sharding!r}"
            )
        if self.sharding == "replicated" and self.send == "pooled":
            raise ConfigError(f"{where}: a replicated table sends no rows; leave send at 'rows'")
