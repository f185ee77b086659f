"""How a matrix lies in memory."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["has_rows"]


def has_rows(x_BD: NDArray[np.float32]) -> bool:
    """Whether entries of a row are neighbors in memory, and rows are apart."""
    rows, cols = x_BD.shape
    near, apart = cols <= 1 or x_BD.strides[1] == 4, rows <= 1 or x_BD.strides[0] >= 4 * cols
    return (near and apart) or x_BD.size == 0
