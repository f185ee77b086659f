"""A rank's rows of all tables, their optimizer state, and what updates them.

Shape legend: ``R`` rows of the rank's matrix, ``D`` dimensions, ``C`` contributions to rows.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from laconic import kernels
from laconic.errors import ConfigError
from laconic.exchange.contributions import Contributions
from laconic.exchange.noise import NoiseCount
from laconic.exchange.tables.copies import Copies, HotRows, hot_pairs, warm_pairs
from laconic.exchange.tables.first_rows import initialize_rows
from laconic.exchange.tables.layout import Layout
from laconic.exchange.tables.memory import allocate_rows
from laconic.exchange.tables.optimizer import RowOptimizer

__all__ = ["Journal", "Shards", "TableShards"]

Ints = NDArray[np.int64]
Rows = NDArray[Any]


class Shards:
    """Rows in one matrix, and one number of state for each if the optimizer needs it."""

    def __init__(
        self, layout: Layout, weight_RD: Tensor, state_R: Tensor | None, optimizer: RowOptimizer
    ) -> None:
        self.layout, self.weight_RD, self.state_R = layout, weight_RD, state_R
        self.weight: Rows = weight_RD.numpy()
        self.state: Rows | None = None if state_R is None else state_R.numpy()
        self.optimizer = optimizer
        self.noise = NoiseCount(
            len(self.weight), ~layout.replicated_T | (layout.rank == 0), self.weight.dtype
        )
        self._journal: Journal | None = None

    def gather(self, out: Rows, index: Ints, offsets: Ints | None) -> None:
        """Fill ``out`` with rows, or with sums of bags of them."""
        kernels.active().sum_bags(out, self.weight, index, offsets)

    def note(self, rows_C: Ints) -> None:
        """Keep rows that an update is about to change, while a journal is kept."""
        if self._journal is not None:
            self._journal.note(rows_C)

    def update(self, came: Contributions) -> int:
        """Update rows by sums of gradients; returns the number of distinct rows."""
        how = self.optimizer
        table = kernels.RowTable(self.weight, self.state)
        update = kernels.RowUpdate(how.code, how.lr, how.eps)
        noise = None if came.rounded is None else self.noise.operand(came.rounded)
        return kernels.active().update_rows(
            table, came.rows_C, came.order_C, came.gradients, came.gradient_C, update, noise
        )

    def set_lr(self, lr: float) -> None:
        """Change the learning rate from the next update on."""
        if lr != self.optimizer.lr:
            self.optimizer = replace(self.optimizer, lr=lr)

    def begin_journal(self) -> None:
        """Note rows from now on, so that ``undo`` can bring them back."""
        self._journal = Journal(self.weight, self.state, self.noise.variance_R)

    def undo(self) -> None:
        """Bring rows back to where the journal was begun."""
        assert self._journal is not None, "begin_journal comes first"
        self._journal.undo()

    def end_journal(self) -> None:
        """Note no more, and forget what was noted."""
        self._journal = None


class TableShards(Shards):
    """A rank's rows by the names of their tables, with copies of hot and warm ones."""

    def __init__(
        self,
        hot: HotRows,
        parts: Layout,
        dim: int,
        optimizer: RowOptimizer,
        dtype: torch.dtype,
        folder: Path | None,
    ) -> None:
        """``parts``: the layout of all parts; ``folder``: for the files of cold tables."""
        memory, file = parts.memory_rows, parts.file_rows
        if file and folder is None:
            raise ConfigError("embeddings: cold tables need cold_folder, a folder for files of their rows")
        weight_RD = allocate_rows(memory, file, (dim,), dtype, folder)
        state_R = allocate_rows(memory, file, (), dtype, folder) if optimizer.has_state else None
        super().__init__(parts, weight_RD, state_R, optimizer)
        self.hot = hot
        self._hot_copies = Copies(hot_pairs(hot, parts), self.weight, self.state, self.noise.variance_R)
        self._warm_copies = Copies(warm_pairs(parts), self.weight, self.state, self.noise.variance_R)

    def initialize(self, seed: int) -> None:
        """Give rows the first values of a seed."""
        initialize_rows(self.weight_RD, self.layout, self.hot, seed)
        self._warm_copies.take(*range(len(self.hot.tables)))

    def view(self, name: str) -> tuple[range, Tensor, Tensor | None]:
        """Ids of a table's rows on this rank, the rows, and their state.

        Copies are written back first.
        """
        t = self._number(name)
        self._hot_copies.write_back(t)
        self._warm_copies.write_back(t)
        ids = range(self.hot.tables[t].rows)[self.layout.shard_ids(t, self.layout.rank)]
        return ids, *self._rows_of(self.layout.shard(t))

    def noise_view(self, name: str) -> Tensor:
        """Variance that rounding has put into a table's rows on this rank; after ``view``."""
        return torch.from_numpy(self.noise.variance_R[self.layout.shard(self._number(name))])

    def take(self, name: str) -> None:
        """Let lookups find what was written to a view."""
        self._warm_copies.take(self._number(name))

    def hot_rows(self, name: str) -> tuple[Ints, Tensor, Tensor | None]:
        """Ids of a table's hot rows, this rank's copies, and their state."""
        t = self._number(name)
        if t not in self.hot.ids:
            return np.empty(0, np.int64), *self._rows_of(slice(0))
        part = len(self.hot.tables) + list(self.hot.ids).index(t)
        return self.hot.ids[t], *self._rows_of(self.layout.shard(part))

    def hot_noise(self, name: str) -> Tensor:
        """Variance that rounding has put into this rank's copies of a table's hot rows."""
        t = self._number(name)
        part = list(self.hot.ids).index(t) + len(self.hot.tables) if t in self.hot.ids else None
        rows = slice(0) if part is None else self.layout.shard(part)
        return torch.from_numpy(self.noise.variance_R[rows])

    def _number(self, name: str) -> int:
        names = [table.name for table in self.hot.tables]
        if name not in names:
            raise ConfigError(f"embeddings: no table {name!r} (known: {', '.join(names)})")
        return names.index(name)

    def _rows_of(self, rows: slice) -> tuple[Tensor, Tensor | None]:
        return self.weight_RD[rows], None if self.state_R is None else self.state_R[rows]


class Journal:
    """Rows as they were before they were updated, so that steps can be taken back.

    A copy of all tables would take as much memory as the tables; a few steps touch few rows.
    """

    def __init__(self, *matrices: Rows | None) -> None:
        """``matrices``: rows, and what belongs to them, such as optimizer state and noise."""
        self._matrices = [matrix for matrix in matrices if matrix is not None]
        self._entries: list[tuple[Ints, list[Rows]]] = []

    def note(self, rows: Ints) -> None:
        """Keep these rows, which an update is about to change; repeated ones once."""
        rows = np.unique(rows)
        self._entries.append((rows, [matrix[rows] for matrix in self._matrices]))

    def undo(self) -> None:
        """Bring rows back as they were when the journal was begun; it goes on from there."""
        for rows, kept in reversed(self._entries):
            for matrix, values in zip(self._matrices, kept, strict=True):
                matrix[rows] = values
        self._entries.clear()
