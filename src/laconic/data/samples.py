"""Samples as a model takes them. Shape legend: ``B`` samples, ``F`` dense features."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from laconic.lookups import Lookups

__all__ = ["Samples"]


@dataclass(frozen=True, slots=True, eq=False)
class Samples:
    """Any number of samples, none included: shapes hold then too."""

    label_B: Tensor
    """float32, 0 or 1."""

    dense_BF: Tensor
    """float32, finite."""

    lookups: Lookups
    """One table for every categorical feature of the schema, in its order; ids are in [0, rows)."""

    def __len__(self) -> int:
        return int(self.label_B.shape[0])
