"""What the serving benchmark found, as values."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from benchmarks.timing import Times

__all__ = ["Row"]


@dataclass(frozen=True, slots=True)
class Row:
    """One engine, one model, one batch size, on one core."""

    engine: str
    model: str
    batch: int

    samples_per_s: float
    """The batch over the median time of a call."""

    p50_ms: float
    p99_ms: float

    size_bytes: int
    """Of tables and layers, as they are held in memory."""

    ne: float | None
    """Normalized entropy on samples that were not trained on; None where labels mean nothing."""

    auc: float | None

    @classmethod
    def of_times(
        cls,
        seconds: Times,
        *,
        engine: str,
        model: str,
        batch: int,
        size_bytes: int,
        ne: float | None = None,
        auc: float | None = None,
    ) -> Row:
        """Take the time of every call."""
        median = float(np.median(seconds))
        p99 = float(np.quantile(seconds, 0.99))
        return cls(engine, model, batch, batch / median, median * 1e3, p99 * 1e3, size_bytes, ne, auc)
