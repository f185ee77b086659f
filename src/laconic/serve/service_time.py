"""How long a batch takes: ``overhead + n * per sample``, fitted to what was measured lately.

Least squares with forgetting: a measurement counts ``MEMORY ** age``, so a machine that becomes slower is
believed after some tens of batches.
"""

from __future__ import annotations

__all__ = ["ServiceTime"]

MEMORY = 0.97


class ServiceTime:
    """A line through (samples, seconds); both coefficients >= 0. Before the first measurement, 0."""

    def __init__(self) -> None:
        self._w = self._n = self._nn = self._t = self._nt = 0.0

    def add(self, samples: int, seconds: float) -> None:
        """Take a measurement."""
        self._w = self._w * MEMORY + 1
        self._n = self._n * MEMORY + samples
        self._nn = self._nn * MEMORY + samples * samples
        self._t = self._t * MEMORY + seconds
        self._nt = self._nt * MEMORY + samples * seconds

    def predict(self, samples: int) -> float:
        """Seconds that a batch of this size is expected to take."""
        if not self._w:
            return 0.0
        spread = self._w * self._nn - self._n * self._n
        if spread <= 1e-9 * self._w * self._nn:  # one size only: all of it may be due to the samples
            return self._t / self._n * samples if self._n else self._t / self._w
        slope = (self._w * self._nt - self._n * self._t) / spread
        level = (self._t - slope * self._n) / self._w
        if slope < 0:
            return self._t / self._w
        if level < 0:
            return self._nt / self._nn * samples
        return level + slope * samples
