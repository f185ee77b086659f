"""What every source of samples fulfils.

The order of an epoch's samples is a function of the source, its seed and the epoch, never of the number of
ranks; who gets which of them is in ``rank_slices``. So any number of ranks trains on the same global batches.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from laconic.data.schema import Samples, Schema
from laconic.lookups import Lookups

__all__ = ["Source"]


class Source(Protocol):
    """A set of samples in two splits, "train" (shuffled each epoch) and "eval" (in one order)."""

    schema: Schema

    def samples_in(self, split: str) -> int:
        """Count the samples of an epoch, over all ranks."""
        ...

    def batches(
        self, split: str, *, global_batch: int, rank: int, ranks: int, epoch: int = 0, start: int = 0
    ) -> Iterator[Samples]:
        """Yield this rank's part of every global batch, from global sample ``start`` of the epoch on.

        Every rank yields the same number of batches, empty ones where it has no part. ``start`` yields
        what would have come from there on, bit for bit, without reading all that comes before.
        """
        ...

    def lookups_in_order(self, split: str) -> Iterator[Lookups]:
        """Yield what all samples of a split look up, as they come in the files and not as an epoch has them."""
        ...
