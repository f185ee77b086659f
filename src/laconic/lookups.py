"""What a batch looks up: bags of ids, table by table.

Ids are stored table after table, within a table sample after sample. Shape legend: ``T`` tables,
``B`` samples, ``L`` ids in all.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = ["Lookups"]


@dataclass(frozen=True, slots=True, eq=False)
class Lookups:
    """A jagged matrix of tables x samples, each cell a bag of row numbers (possibly empty)."""

    ids_L: Tensor
    """int64, row numbers of their table."""

    offsets: Tensor
    """int64, T * B + 1: the bag of table t and sample b is ``ids_L[offsets[t*B+b] : offsets[t*B+b+1]]``."""

    tables: int
    """T, of which some may be looked up by nobody."""

    @classmethod
    def one_hot(cls, ids_TB: Tensor) -> Lookups:
        """One id for every table and sample."""
        return cls(ids_TB.reshape(-1), torch.arange(ids_TB.numel() + 1), ids_TB.shape[0])

    @property
    def samples(self) -> int:
        """B, which may be zero."""
        return (self.offsets.numel() - 1) // self.tables
