"""A rank's rows by the names of their tables; shape legend: ``R`` rows, ``D`` dimensions."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from laconic.errors import ConfigError
from laconic.exchange import Layout
from laconic.exchange.tables.hot_rows import HotRows

__all__ = ["ShardViews"]


@dataclass(frozen=True, slots=True)
class ShardViews:
    """Views of one matrix and its optimizer state."""

    layout: Layout
    """Of the tables."""

    parts: Layout
    """Of these, and of the copies of their hot rows behind them."""

    hot: HotRows
    weight_RD: Tensor
    state_R: Tensor | None

    def table_shard(self, name: str) -> tuple[range, Tensor, Tensor | None]:
        """Ids of a table's rows on this rank, the rows, and their state."""
        t = self.number(name)
        ids = range(self.layout.tables[t].rows)[self.layout.shard_ids(t, self.layout.rank)]
        return ids, *self._rows_of(self.parts.shard(t))

    def hot_rows(self, name: str) -> tuple[NDArray[np.int64], Tensor, Tensor | None]:
        """Ids of a table's hot rows, this rank's copies, and their state."""
        t = self.number(name)
        if t not in self.hot.ids:
            return np.empty(0, np.int64), *self._rows_of(slice(0))
        part = len(self.layout.tables) + list(self.hot.ids).index(t)
        return self.hot.ids[t], *self._rows_of(self.parts.shard(part))

    def number(self, name: str) -> int:
        """Which of the tables it is; ``ConfigError`` if there is none."""
        names = [table.name for table in self.layout.tables]
        if name not in names:
            raise ConfigError(f"embeddings: no table {name!r} (known: {', '.join(names)})")
        return names.index(name)

    def _rows_of(self, rows: slice) -> tuple[Tensor, Tensor | None]:
        return self.weight_RD[rows], None if self.state_R is None else self.state_R[rows]
