"""Decay of error bounds by the training signal: wide while the loss falls fast, narrow as it levels out.

A fast and a slow average follow the loss. While it falls the slow one lags behind, and the
distance says how fast training improves::

    rate       = (slow - fast) / slow
    multiplier = 1 + (k - 1) * rate / (largest rate seen)          never rising again

Every rank observes the same global loss, so every rank arrives at the same multiplier.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from laconic.adapt.decay import check_k, held
from laconic.errors import ConfigError

__all__ = ["ClosedLoop"]

# of an average's weight, what each observation leaves to those before: memories of about 5 and 20
_FAST, _SLOW = 0.8, 0.95
_ENOUGH = 3  # observations before a rate means anything


class ClosedLoop:
    """A multiplier on bounds that falls from k to 1 as training stops improving.

    A loss that does not fall brings it to 1 for good, also at the very start: widening is for
    training that is seen to improve. It takes at most 65 values (see ``decay.LEVELS``).
    """

    def __init__(self, k: float = 2.0) -> None:
        check_k("closed_loop", k)
        self.k = k
        self._observations = 0
        self._fast = 0.0
        self._slow = 0.0
        self._largest_rate = 0.0
        self._share = 1.0

    def observe(self, loss: float) -> None:
        """Take the global mean loss of the last interval.

        One that is not finite brings the multiplier to 1 at once: training is in trouble, and
        wide bounds must not be a part of it.
        """
        if not math.isfinite(loss):
            self._share = 0.0
            return
        if loss < 0:
            raise ConfigError(
                f"closed_loop: expected a loss >= 0, got {loss!r}; rates are relative to the loss, shift it"
            )
        self._observations += 1
        self._fast += (loss - self._fast) * self._weight(_FAST)
        self._slow += (loss - self._slow) * self._weight(_SLOW)
        rate = (self._slow - self._fast) / self._slow if self._slow else 0.0
        self._largest_rate = max(self._largest_rate, rate)
        if self._observations >= _ENOUGH:
            share = rate / self._largest_rate if rate > 0 else 0.0
            self._share = min(self._share, share)

    @property
    def multiplier(self) -> float:
        """Between k and 1; k before the third observation."""
        return held(self.k, self._share)

    def state(self) -> dict[str, float]:
        """Return all that observations have left behind, as JSON can carry it."""
        return {
            "observations": self._observations,
            "fast": self._fast,
            "slow": self._slow,
            "largest_rate": self._largest_rate,
            "share": self._share,
        }

    @classmethod
    def restore(cls, k: float, state: Mapping[str, float]) -> ClosedLoop:
        """Continue exactly where the state was taken."""
        loop = cls(k)
        loop._observations = int(state["observations"])
        loop._fast = state["fast"]
        loop._slow = state["slow"]
        loop._largest_rate = state["largest_rate"]
        loop._share = state["share"]
        return loop

    def _weight(self, memory: float) -> float:
        # That of the newest observation in an exponential average without a bias towards 0: it
        # starts at 1. Averages of a constant loss are that loss, to the last bit, so their rate is 0.
        return (1 - memory) / (1 - memory**self._observations)
