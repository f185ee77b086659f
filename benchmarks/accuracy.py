"""How far decoded values are from the original."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

_RUN = 1 << 22


def max_error(original: NDArray[np.float32], decoded: NDArray[np.float32]) -> float:
    """Largest absolute difference, in float64; infinite if the shapes differ or a NaN came back."""
    if original.shape != decoded.shape:
        return math.inf
    a, b = original.ravel(), decoded.ravel()
    worst = 0.0
    for start in range(0, a.size, _RUN):
        run = slice(start, start + _RUN)
        error = float(np.abs(a[run].astype(np.float64) - b[run]).max())
        worst = max(worst, math.inf if math.isnan(error) else error)
    return worst
