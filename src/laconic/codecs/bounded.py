"""Bounded: the error-bounded codec for flat tensors, where rows mean nothing.

The block is that of :class:`~laconic.codecs.bounded_rows.BoundedRows` for a matrix of one row:
no de-duplication, everything else the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import ClassVar

from laconic.codecs.bounded_rows import BoundedRows

__all__ = ["Bounded"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Bounded(BoundedRows):
    """Error-bounded codec for flat tensors; settings and guarantee of ``BoundedRows``."""

    wire_id: ClassVar[int] = 2

    def matrix(self, shape: tuple[int, ...]) -> tuple[int, int]:
        """One row of all values."""
        return 1, prod(shape)
