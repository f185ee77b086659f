"""Rows of tables that need not be in memory.

Whoever works on all rows of a table takes piece by piece; whoever scores samples takes the rows
that a group of batches looks up. A tensor is such a table, and so is ``SavedTable`` in
``train.saved_tables``, whose rows are in the files of a checkpoint. Shape legend: ``R`` rows, ``D``
numbers of a row, ``L`` ids, ``U`` distinct ids.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol, TypeVar

import torch
from torch import Tensor

__all__ = ["GROUP_VALUES", "PIECE_VALUES", "LookedUp", "TableRows", "groups", "pieces"]

_Batch = TypeVar("_Batch")

PIECE_VALUES = 1 << 18
"""Most numbers of a piece: 1 MB of float32. What is made of larger ones fragments the heap."""

GROUP_VALUES = 1 << 23
"""Most numbers of the rows that are looked up at a time: 32 MB of float32."""


class TableRows(Protocol):
    """A table: ``table[begin:end]`` has rows one after the other, ``table[ids_L]`` those of ids."""

    @property
    def shape(self) -> torch.Size:
        """R and D."""
        ...

    @property
    def dtype(self) -> torch.dtype:
        """Type of the numbers."""
        ...

    def __len__(self) -> int:
        """R."""
        ...

    def __getitem__(self, rows: slice | Tensor, /) -> Tensor:
        """Return rows in memory."""
        ...


def pieces(table: TableRows) -> Iterator[tuple[int, Tensor]]:
    """Yield all rows in pieces, each with the number of its first row."""
    step = max(PIECE_VALUES // table.shape[1], 1)
    for begin in range(0, len(table), step):
        yield begin, table[begin : begin + step]


class LookedUp:
    """The distinct ids of one table that some batches look up, and which of them each bag has."""

    def __init__(self, bags: Sequence[tuple[Tensor, Tensor]]) -> None:
        """``bags``: ids and offsets of every batch."""
        self.ids_U, places_L = torch.unique(torch.cat([ids_L for ids_L, _ in bags]), return_inverse=True)
        self.places = places_L.split([len(ids_L) for ids_L, _ in bags])
        """Places in ``ids_U``, batch by batch."""
        self.offsets = [offsets for _, offsets in bags]


def groups(batches: Iterable[_Batch], ids_of: Callable[[_Batch], int], most: int) -> Iterator[list[_Batch]]:
    """Put batches together that have ``most`` ids or fewer; a larger batch stays alone."""
    group: list[_Batch] = []
    count = 0
    for batch in batches:
        size = ids_of(batch)
        if group and count + size > most:
            yield group
            group, count = [], 0
        group.append(batch)
        count += size
    if group:
        yield group
