"""How far live scores are from the shadow's, over the last samples that both have scored.

::

    difference    mean |p - s|
    calibration   mean p / mean s - 1
    harm          mean KL(s || p) / entropy of the mean of s

``harm`` is by how much normalized entropy would rise if the shadow's probabilities were the true ones; it is in the
unit of the budget that an artifact was made with. A live score that is not a number counts as wrong as can be. Where the
shadow's is none, nothing can be said of the live one: such samples must not get here.
Shape legend: ``B`` samples; ``p_B`` live, ``s_B`` the shadow's.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from laconic.serve.settings import Watching

__all__ = ["ScoreDrift", "ScoreFigures", "exceeded", "score_figures"]

_LEAST = 1e-6

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class ScoreFigures:
    """Of one window."""

    samples: int
    difference: float
    calibration: float
    harm: float


def score_figures(p_B: NDArray[np.float32], s_B: NDArray[np.float32]) -> ScoreFigures:
    """Compare; needs at least one sample, and finite scores of the shadow."""
    s = np.clip(s_B.astype(np.float64), _LEAST, 1 - _LEAST)
    worst = np.where(s < 0.5, 1 - _LEAST, _LEAST)
    p = np.clip(np.where(np.isfinite(p_B), p_B, worst), _LEAST, 1 - _LEAST)
    rate = float(s.mean())
    entropy = -(rate * np.log(rate) + (1 - rate) * np.log1p(-rate))
    divergence = s * np.log(s / p) + (1 - s) * np.log((1 - s) / (1 - p))
    return ScoreFigures(
        samples=s.size,
        difference=float(np.abs(p - s).mean()),
        calibration=float(p.mean() / rate - 1),
        harm=float(divergence.mean() / entropy),
    )


def exceeded(figures: ScoreFigures, limits: Watching, budget: float | None) -> list[tuple[str, float, float]]:
    """Figures beyond their limits: name, value, limit."""
    judged = (
        ("harm", figures.harm, limits.harm if budget is None else max(budget, 1e-6) * 2),
        ("difference", figures.difference, limits.difference),
        ("calibration", abs(figures.calibration), limits.calibration),
    )
    return [(name, value, limit) for name, value, limit in judged if value > limit]


class ScoreDrift:
    """A sliding window of pairs."""

    def __init__(self, window: int) -> None:
        self._window = window
        self._pairs: deque[tuple[NDArray[np.float32], NDArray[np.float32]]] = deque()
        self._samples = 0

    def add(self, p_B: NDArray[np.float32], s_B: NDArray[np.float32]) -> None:
        """Take samples; the oldest leave."""
        self._pairs.append((p_B, s_B))
        self._samples += p_B.size
        while self._samples - self._pairs[0][0].size >= self._window:
            self._samples -= self._pairs.popleft()[0].size

    def clear(self) -> None:
        """Forget: the live model is another one now."""
        self._pairs.clear()
        self._samples = 0

    def figures(self) -> ScoreFigures | None:
        """Of the window; None while it is empty."""
        pairs = list(self._pairs)  # a report may be asked for while the watch adds
        if not pairs:
            return None
        p, s = zip(*pairs, strict=True)
        return score_figures(np.concatenate(p), np.concatenate(s))
