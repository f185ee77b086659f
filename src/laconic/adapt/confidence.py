"""How sure a mean is, however often one looks.

A guard that compares models looks again and again, and an interval made for one look is left sooner
or later by luck alone. This one holds at *all* counts together, with probability ``1 - alpha``:
read it at any time and act upon it. With ``n`` values, and ``S`` the sum of their squared distances
from their mean::

    radius = sqrt(S / n * (a - 1) / (1 - a / (n r + 1)))          a = ((n r + 1) / alpha^2) ^ (1/n)

infinite while ``a >= n r + 1``, as it always is for one value. This is a t-test that may be
continued at will (Wang and Ramdas, "Anytime-valid t-tests and confidence sequences for Gaussian
means with unknown variance", arXiv:2310.03722): exact for independent normal values of unknown
variance. For others it holds in the limit of many, where it becomes the asymptotic confidence
sequence of Waudby-Smith, Arbour, Sinha, Kennedy and Ramdas ("Time-uniform central limit theory and
asymptotic confidence sequences", arXiv:2103.06476)::

    sqrt(S / n) * sqrt(2 (n r + 1) / (n^2 r) * log(sqrt(n r + 1) / alpha))

That one takes the variance of the first few values for the true one: over 400 looks at normal
values, ``alpha`` 0.05 and ``tightest_at`` 50, it was ever left by 20 % of streams, the t-test by
3 %. Few and skewed values mislead both. ``r``, their rho squared, is their choice for the narrowest
interval at ``tightest_at`` values.

Values must be independent. The differences between two models over the samples of one look are not,
all share those two models: add their mean as one value then.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
from numpy.typing import ArrayLike, NDArray

from laconic.errors import ConfigError

__all__ = ["RunningMean"]


class RunningMean:
    """Mean of a stream of values, with an interval that holds at all times together.

    Values that are all alike have an interval of width 0: do not trust it with differences that
    are mostly 0.
    """

    def __init__(self, tightest_at: int) -> None:
        """``tightest_at``: number of values at which a decision is expected, fixed beforehand."""
        if tightest_at < 1:
            raise ConfigError(f"confidence.tightest_at: expected a count >= 1, got {tightest_at!r}")
        self._tightest_at = tightest_at
        self._count = 0
        self._mean = 0.0
        self._squares = 0.0  # sum of squared distances from the mean

    def add(self, values: ArrayLike) -> None:
        """Take one value or an array of them, possibly empty."""
        new: NDArray[np.float64] = np.asarray(values, dtype=np.float64).ravel()
        if not np.isfinite(new).all():
            first = int(np.flatnonzero(~np.isfinite(new))[0])
            raise ConfigError(
                f"confidence: expected finite values, got {float(new[first])!r} at {first}; "
                f"a model that diverged has no mean difference"
            )
        if not new.size:
            return
        # Chan's merge: sums of squares of values far from 0 would cancel to nothing
        mean = float(new.mean())
        squares = float(np.square(new - mean).sum())
        count = self._count + new.size
        apart = mean - self._mean
        self._squares += squares + apart * apart * (self._count * new.size / count)
        self._mean += apart * (new.size / count)
        self._count = count

    @property
    def count(self) -> int:
        """How many values were added."""
        return self._count

    @property
    def mean(self) -> float:
        """Mean of all values; NaN if there are none."""
        return self._mean if self._count else math.nan

    def radius(self, alpha: float) -> float:
        """Half the width of the interval that the mean ever leaves with probability ``alpha``.

        Both sides are counted together.

        Infinite while values are too few to say anything; at least two are needed.
        """
        if not 0 < alpha <= 0.5:
            raise ConfigError(f"confidence.alpha: expected a probability in (0, 0.5], got {alpha!r}")
        if not self._count:
            return math.inf
        doubt = -2 * math.log(alpha)
        r = (doubt + math.log(doubt) + 1) / self._tightest_at
        spread = math.log1p(self._count * r)
        log_a = (doubt + spread) / self._count
        if log_a >= spread:
            return math.inf
        widening = math.expm1(log_a) / -math.expm1(log_a - spread)
        return math.sqrt(self._squares / self._count * widening)

    def upper(self, alpha: float) -> float:
        """Upper end of the interval."""
        return self._mean + self.radius(alpha)

    def lower(self, alpha: float) -> float:
        """Lower end of the interval."""
        return self._mean - self.radius(alpha)

    def state(self) -> dict[str, float]:
        """Return all that values have left behind, as JSON can carry it."""
        return {"count": self._count, "mean": self._mean, "squares": self._squares}

    @classmethod
    def restore(cls, tightest_at: int, state: Mapping[str, float]) -> RunningMean:
        """Continue exactly where the state was taken."""
        running = cls(tightest_at)
        running._count = int(state["count"])
        running._mean = state["mean"]
        running._squares = state["squares"]
        return running
