"""Transforms of dense features, and the mean and deviation that one of them needs.

What is missing -- null, NaN, infinite -- is 0 after the transform: zero for counts, the mean for
standardised features. Shape legend: ``N`` samples.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

__all__ = ["Dense", "measured"]


@dataclass(frozen=True, slots=True)
class Dense:
    """One feature: a logarithm or not, then ``(x - mean) / deviation``."""

    column: str
    log1p: bool = False
    mean: float = 0.0
    deviation: float = 1.0

    def __call__(self, values: Any) -> NDArray[np.float32]:
        """Transform a pyarrow array of numbers or booleans."""
        x_N = self.raw(values)
        if self.mean != 0.0 or self.deviation != 1.0:
            x_N = (x_N - self.mean) / self.deviation
        with np.errstate(over="ignore"):
            out_N = x_N.astype(np.float32)
        out_N[~np.isfinite(out_N)] = 0.0
        return out_N

    def raw(self, values: Any) -> NDArray[np.float64]:
        """Take the logarithm where there is one, before mean and deviation; missing values are not finite."""
        x_N: NDArray[np.float64] = values.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
        return np.log1p(np.maximum(x_N, 0.0)) if self.log1p else x_N


def measured(features: list[Dense], tables: Iterable[Any]) -> list[Dense]:
    """Give features the mean and deviation of the finite values of all tables."""
    count, mean, square = (np.zeros(len(features)) for _ in range(3))
    for table in tables:
        for f, feature in enumerate(features):
            x = feature.raw(table[feature.column].combine_chunks())
            x = x[np.isfinite(x)]
            if not x.size:
                continue
            total = count[f] + x.size  # Chan's update: exact for constants, stable for the rest
            delta = x.mean() - mean[f]
            square[f] += ((x - x.mean()) ** 2).sum() + delta**2 * count[f] * x.size / total
            mean[f] += delta * x.size / total
            count[f] = total
    found = []
    for f, feature in enumerate(features):
        deviation = math.sqrt(square[f] / count[f]) if count[f] else 0.0
        found.append(
            Dense(feature.column, feature.log1p, float(mean[f]), deviation if deviation > 0 else 1.0)
        )
    return found
