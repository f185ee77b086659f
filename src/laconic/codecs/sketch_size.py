"""How many cells a sketch needs, so that one or two in 1,000 stall, and fewer above 10,000 nonzeros.

The numbers come from simulation: 10,000 nonzeros need 1.28 cells each, a million 1.165. Few nonzeros need more
cells each, because two of them that share all three cells stall alone: of sketches with ``n`` nonzeros and ``c n``
cells, one in ``2 c^3 n / 27`` has such a pair. From 215,000 on, many segments (``kernels.sketch_layout``) need fewer.
All in integers, so that every rank computes the same.
"""

from __future__ import annotations

from itertools import pairwise

__all__ = ["cells_for"]

_ENOUGH = (
    (0, 3),
    (1, 12),
    (10, 90),
    (20, 140),
    (50, 260),
    (100, 410),
    (200, 650),
    (500, 1_200),
    (1_000, 1_890),
    (2_000, 3_000),
    (3_000, 3_960),
    (5_000, 6_500),
    (10_000, 12_800),
    (30_000, 37_700),
    (100_000, 124_500),
    (210_000, 260_400),
    (215_000, 263_000),
    (500_000, 592_500),
    (1_000_000, 1_165_000),
    (4_000_000, 4_560_000),
    (16_000_000, 18_080_000),
    (2**32, 2**32 * 113 // 100),
)
"""Nonzeros, and cells enough for them; between two of these a straight line."""

_MISTAKEN_PERCENT = 8
"""Positions that a Bloom filter takes for nonzeros, which need cells too."""


def cells_for(size: int, nonzeros: int) -> dict[str, int]:
    """Cells for each form of index that can be had, at most ``size``."""
    plain = min(size, _cells(nonzeros))
    mistaken = _cells(nonzeros + nonzeros * _MISTAKEN_PERCENT // 100 + 4)
    return {"bitmap": plain, "bloom": mistaken} if mistaken < size else {"bitmap": plain}


def _cells(nonzeros: int) -> int:
    for (low, cells_low), (high, cells_high) in pairwise(_ENOUGH):
        if nonzeros <= high:
            cells = cells_low + -(-(nonzeros - low) * (cells_high - cells_low) // (high - low))
            return -(-cells // 3) * 3  # three equal segments
    raise ValueError(f"more than 2^32 nonzeros: {nonzeros}")
