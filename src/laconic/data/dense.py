"""Transforms of dense features, and the mean and deviation that one of them needs; without pyarrow.

What is missing -- null, NaN, infinite -- is 0 after the transform: zero for counts, the mean for
standardized features. ``odd_values`` counts what is missing. Shape legend: ``N`` samples.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
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
        """Transform a pyarrow array of numbers or booleans; the result may share its memory."""
        whole_N = _whole_numbers(values)
        if whole_N is not None:
            return self._of_whole(whole_N)
        if self._is_plain and not values.null_count and str(values.type) == "float":
            out_N: NDArray[np.float32] = values.to_numpy()
            if np.isfinite(out_N).all():
                return out_N
        return self._finite(self.raw(values))

    @property
    def _is_plain(self) -> bool:
        return not self.log1p and self.mean == 0.0 and self.deviation == 1.0

    def _of_whole(self, x_N: NDArray[Any]) -> NDArray[np.float32]:
        """Transform integers: the same, but each distinct value only once where they are small."""
        if self._is_plain:
            return x_N.astype(np.float32)
        if int(x_N.min()) >= 0 and int(x_N.max()) < len(x_N) // 4:
            every = np.arange(int(x_N.max()) + 1, dtype=np.float64)
            return self._finite(self._logarithm(every)).take(x_N)
        return self._finite(self._logarithm(x_N.astype(np.float64)))

    def raw(self, values: Any) -> NDArray[np.float64]:
        """Return values as they are before standardization; missing ones are not finite."""
        return self._logarithm(_floats(values))

    def odd(self, values: Any) -> tuple[int, int, int, int]:
        """Count values that the transform replaces: null, NaN, infinite or too large, negative."""
        whole_N = _whole_numbers(values)
        if whole_N is not None:
            ends = np.array([whole_N.min(), whole_N.max()], np.float64)
            fine = bool(np.isfinite(self._scaled(self._logarithm(ends))).all())
            if fine and (ends[0] >= 0 or not self.log1p):
                return 0, 0, 0, 0
        x_N = _floats(values)
        nan = int(np.count_nonzero(np.isnan(x_N)))
        negative = int(np.count_nonzero(x_N < 0)) if self.log1p else 0
        infinite = 0
        if nan < x_N.size:
            ends = np.array([np.fmin.reduce(x_N), np.fmax.reduce(x_N)])
            # the transform is monotonic: if both ends are finite, all values are
            if not np.isfinite(self._scaled(self._logarithm(ends))).all():
                infinite = int(np.count_nonzero(np.isinf(self._scaled(self._logarithm(x_N)))))
        return values.null_count, nan - values.null_count, infinite, negative

    def _logarithm(self, x_N: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.log1p(np.maximum(x_N, 0.0)) if self.log1p else x_N

    def _finite(self, x_N: NDArray[np.float64]) -> NDArray[np.float32]:
        """Standardize, and put 0 for what is missing."""
        out_N = self._scaled(x_N)
        finite_N = np.isfinite(out_N)
        if not finite_N.all():
            out_N[~finite_N] = 0.0
        return out_N

    def _scaled(self, x_N: NDArray[np.float64]) -> NDArray[np.float32]:
        with np.errstate(over="ignore"):
            if self.mean != 0.0 or self.deviation != 1.0:
                x_N = (x_N - self.mean) / self.deviation
            return x_N.astype(np.float32)


def _whole_numbers(values: Any) -> NDArray[Any] | None:
    """Return integers in place; None if these are none, or if some are missing."""
    if values.null_count or not len(values):
        return None
    x_N: NDArray[Any] = values.to_numpy(zero_copy_only=False)
    return x_N if x_N.dtype.kind in "iu" else None


def _floats(values: Any) -> NDArray[np.float64]:
    """Numbers as float64; null is NaN."""
    x_N: NDArray[np.float64] = values.cast("float64", safe=False).to_numpy(zero_copy_only=False)
    return x_N


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
