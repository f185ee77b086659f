"""What a batch looks up: bags of ids, table by table.

Ids are stored table after table, within a table sample after sample. Shape legend: ``T`` tables,
``B`` samples, ``L`` ids in all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from laconic.errors import ConfigError

__all__ = ["Lookups"]

_INTEGERS = (torch.int64, torch.int32, torch.int16, torch.uint8)


@dataclass(frozen=True, slots=True, eq=False)
class Lookups:
    """A jagged matrix of tables x samples, each cell a bag of row numbers (possibly empty)."""

    ids_L: Tensor
    """int64, row numbers of their table."""

    offsets: Tensor
    """int64, T * B + 1: the bag of table t and sample b is ``ids_L[offsets[t*B+b] : offsets[t*B+b+1]]``."""

    tables: int
    """T, of which some may be looked up by nobody."""

    def __post_init__(self) -> None:
        if self.tables < 1:
            raise ConfigError(f"lookups: expected at least one table, got {self.tables!r}")
        for name, least in (("ids_L", 0), ("offsets", 1)):
            tensor = getattr(self, name)
            if (
                tensor.dim() != 1
                or tensor.dtype not in _INTEGERS
                or tensor.numel() < least
                or not tensor.is_cpu
            ):
                raise ConfigError(
                    f"lookups.{name}: expected a 1-D tensor of int64 on the CPU with at least {least} entries, got "
                    f"{tensor.dtype} of shape {tuple(tensor.shape)} on {tensor.device}"
                )
            object.__setattr__(self, name, tensor.to(torch.int64).contiguous())

    def copy(self) -> Lookups:
        """Return the same in memory of its own."""
        return Lookups(self.ids_L.clone(), self.offsets.clone(), self.tables)

    @classmethod
    def one_hot(cls, ids_TB: Tensor) -> Lookups:
        """One id for every table and sample."""
        if ids_TB.dim() != 2:
            raise ConfigError(f"lookups: expected ids of shape (tables, samples), got {tuple(ids_TB.shape)}")
        return cls(ids_TB.reshape(-1), torch.arange(ids_TB.numel() + 1), ids_TB.shape[0])

    @classmethod
    def joined(cls, parts: Sequence[Lookups]) -> Lookups:
        """Bags of all samples of several batches, at least one, in their order."""
        tables = parts[0].tables
        bags = [part.bags(t) for t in range(tables) for part in parts]
        sizes = torch.cat([offsets.diff() for _, offsets in bags])
        return cls(torch.cat([ids_L for ids_L, _ in bags]), _begins(sizes), tables)

    @property
    def samples(self) -> int:
        """B, which may be zero."""
        return (self.offsets.numel() - 1) // self.tables

    def bags(self, table: int) -> tuple[Tensor, Tensor]:
        """Ids of one table, and B + 1 offsets: where the bag of each sample begins in them, and their end."""
        offsets = self.offsets[table * self.samples : (table + 1) * self.samples + 1]
        return self.ids_L[int(offsets[0]) : int(offsets[-1])], offsets - offsets[0]

    def select(self, chosen: Tensor) -> Lookups:
        """Bags of some samples, by their numbers, in any order."""
        bags = (torch.arange(self.tables).unsqueeze(1) * self.samples + chosen).flatten()
        begins, ends = self.offsets[bags], self.offsets[bags + 1]
        offsets = _begins(ends - begins)
        place_L = torch.arange(int(offsets[-1]))
        place_L += torch.repeat_interleave(begins - offsets[:-1], ends - begins)
        return Lookups(self.ids_L[place_L], offsets, self.tables)


def _begins(sizes: Tensor) -> Tensor:
    """Where bags of these sizes begin, one after the other, and the end of the last."""
    return torch.nn.functional.pad(sizes.cumsum(0), (1, 0))
