"""Blocks of rows: how many there are, and their bytes, of which few rows leave mostly the header.

A rank sends each other rank a block a table. On hundreds of ranks most hold one row or none, so
that a row takes half as many bytes again as it does on two ranks. A block of ``BoundedRows`` with
an absolute bound, which all ranks agree on, takes about ::

    14 + rows x bytes of a row in a large block

and at most the bytes of its values and one more. A block without rows takes nothing. The 14 bytes
are those of ``docs/formats/bounded_rows.md``: form (1), step (4), base (1), smallest code (2), the
begin of the code sequence (4), numbers of outliers and of patches (1 each). Blocks of 1 to 64
encoded rows stay within 10 % of the formula for bounds of the defaults and finer, and within 25 %
for wider ones, whose rows of a few bytes need most of the header's space or repeat
(``tests/cost/test_blocks.py``). Shape legend: ``G`` runs of equally likely rows.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["BLOCK_BYTES", "blocks_bytes", "filled_share"]

Floats = NDArray[np.float64]
BLOCK_BYTES = 14.0
"""Bytes of a block beside those of its rows."""
_STORED_BYTES = 1.0  # the form of a block whose values are stored


def blocks_bytes(coded: float, exact: float, blocks: float, header: float = BLOCK_BYTES) -> float:
    """Return bytes of blocks with rows of ``coded`` bytes, or ``exact`` as they are."""
    return min(header * blocks + coded, _STORED_BYTES * blocks + exact)


def filled_share(count_G: NDArray[np.int64], needed_G: Floats, owners: int) -> float:
    """Return the share of owners that a rank needs any row of.

    ``count_G`` rows of a run, the likeliest first, are each needed with probability ``needed_G``.
    Owners have them in turn. So each owner has one of the ``owners`` likeliest rows, or none if
    there are fewer, and of all others a number that a Poisson distribution describes.
    """
    ends_G, mass_G = np.cumsum(count_G), np.cumsum(count_G * needed_G)
    if not len(ends_G):
        return 0.0
    likeliest = float(np.interp(owners, np.append(0.0, ends_G), np.append(0.0, mass_G))) / owners
    others = float(mass_G[-1]) / owners - likeliest
    return 1 - (1 - likeliest) * float(np.exp(-others))
