"""How the range of a row that its codes cover is chosen."""

from __future__ import annotations

from enum import StrEnum

__all__ = ["Ranges"]


class Ranges(StrEnum):
    """From the smallest value to the largest, or less for a smaller error of the rest: see ``reference.row_ranges``."""

    MINMAX = "minmax"
    GREEDY = "greedy"
    L2 = "l2"

    @property
    def code(self) -> int:
        """Number by which kernels know it."""
        return list(Ranges).index(self)
