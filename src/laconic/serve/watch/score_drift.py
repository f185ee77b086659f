"""Score drift: how far live scores are from the shadow's, and which part is to blame.

::

    difference    mean |p - s|
    calibration   mean p / mean s - 1
    harm          mean KL(s || p) / entropy of the mean of s

``harm`` is the rise of normalized entropy if the shadow's probabilities were the true ones. It has
the unit of the budget that an artifact was made with. A live score that is not a number counts as
wrong as can be. Samples whose shadow's score is not a number must be left out before: nothing can
be said of them. Shape legend: ``B`` samples; ``p_B`` live, ``s_B`` the shadow's.

A part is a table or a layer. To find the one to blame, parts are raised to fp32 one at a time, the
worst first, until the difference is small enough. This is done on the model that answers, not on a
copy from disk, so a table whose rows were damaged in memory is found too.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from laconic.lookups import Lookups
from laconic.serve.engine import Engine
from laconic.serve.settings import Watching

__all__ = [
    "MODEL",
    "Blame",
    "Evidence",
    "Finding",
    "ScoreDrift",
    "ScoreFigures",
    "blame",
    "limited",
    "score_figures",
    "settle",
]

_LEAST = 1e-6

Floats = NDArray[np.float64]

MODEL = "model"
"""Name of the part that stands for the whole model."""
_WORTH = 0.9
"""A part is to blame if raising it leaves less than this share of the harm."""


@dataclass(frozen=True, slots=True)
class ScoreFigures:
    """How far live scores are from the shadow's in one window."""

    samples: int
    difference: float
    calibration: float
    harm: float


def score_figures(p_B: NDArray[np.float32], s_B: NDArray[np.float32]) -> ScoreFigures:
    """Compare scores of at least one sample; those of the shadow must be finite."""
    s = np.clip(s_B.astype(np.float64), _LEAST, 1 - _LEAST)
    worst = np.where(s < 0.5, 1 - _LEAST, _LEAST)
    p = np.clip(np.where(np.isfinite(p_B), p_B, worst), _LEAST, 1 - _LEAST)
    mean = float(s.mean())
    entropy = -(mean * np.log(mean) + (1 - mean) * np.log1p(-mean))
    divergence = s * np.log(s / p) + (1 - s) * np.log((1 - s) / (1 - p))
    return ScoreFigures(
        samples=s.size,
        difference=float(np.abs(p - s).mean()),
        calibration=float(p.mean() / mean - 1),
        harm=float(divergence.mean() / entropy),
    )


def limited(
    figures: ScoreFigures, limits: Watching, budget: float | None
) -> tuple[tuple[str, float, float], ...]:
    """Return name, value and limit of every figure that has a limit."""
    return (
        ("harm", figures.harm, limits.harm if budget is None else max(budget, 1e-6) * 2),
        ("difference", figures.difference, limits.difference),
        ("calibration", abs(figures.calibration), limits.calibration),
    )


class ScoreDrift:
    """A sliding window of live scores and the shadow's."""

    def __init__(self, window: int) -> None:
        self._window = window
        self._pairs: deque[tuple[NDArray[np.float32], NDArray[np.float32]]] = deque()
        self._samples = 0

    def add(self, p_B: NDArray[np.float32], s_B: NDArray[np.float32]) -> None:
        """Add samples; the oldest leave the window."""
        self._pairs.append((p_B, s_B))
        self._samples += p_B.size
        while self._samples - self._pairs[0][0].size >= self._window:
            self._samples -= self._pairs.popleft()[0].size

    def clear(self) -> None:
        """Forget all samples: the live model is another one now."""
        self._pairs.clear()
        self._samples = 0

    def figures(self) -> ScoreFigures | None:
        """Return the figures of the window; None while it is empty."""
        pairs = list(self._pairs)  # a report may be asked for while the watch adds
        if not pairs:
            return None
        p, s = zip(*pairs, strict=True)
        return score_figures(np.concatenate(p), np.concatenate(s))


@dataclass(frozen=True, slots=True, eq=False)
class Evidence:
    """Samples, and the shadow's scores of them."""

    dense_BF: NDArray[np.float32]
    lookups: Lookups
    shadow_B: NDArray[np.float32]

    def figures(self, engine: Engine) -> ScoreFigures:
        """Compare a model with the shadow on these samples."""
        return score_figures(engine.score(self.dense_BF, self.lookups), self.shadow_B)


@dataclass(frozen=True, slots=True)
class Blame:
    """A part, the model with this part in fp32, and the figures before and after."""

    part: str
    engine: Engine
    before: ScoreFigures
    after: ScoreFigures


def blame(engine: Engine, evidence: Evidence) -> Iterator[Blame]:
    """Name parts, the worst first, each raised on top of those before.

    The first answer takes one pass over the evidence for each part below fp32.
    """
    before = evidence.figures(engine)
    while engine.lowered:
        trials = []
        for part in engine.lowered:
            raised = engine.raised(part)
            trials.append(Blame(part, raised, before, evidence.figures(raised)))
        best = min(trials, key=lambda trial: trial.after.harm)
        yield best
        engine, before = best.engine, best.after


@dataclass(frozen=True, slots=True)
class Finding:
    """A part that was found to blame."""

    unix_s: float
    part: str
    harm_before: float
    harm_after: float
    switched: bool


def settle(
    live: Engine, shadow: Engine, evidence: Evidence, settings: Watching
) -> tuple[Engine, list[Finding]]:
    """Return a model within all limits, and the parts that were to blame, if any.

    The model is the shadow where no single part makes a difference, or half of them are not enough.
    """

    def within(figures: ScoreFigures) -> bool:
        return not any(value > limit for _, value, limit in limited(figures, settings, live.budget))

    if within(evidence.figures(live)):
        return live, []
    engine, findings = live, list[Finding]()
    most = max(1, len(live.lowered) // 2)
    for found in blame(live, evidence):
        if found.after.harm > found.before.harm * _WORTH or len(findings) == most:
            break
        findings.append(_finding(found.part, found.before, found.after, settings))
        engine = found.engine
        if within(found.after):
            return engine, findings
    findings.append(_finding(MODEL, evidence.figures(engine), evidence.figures(shadow), settings))
    return shadow, findings


def _finding(part: str, before: ScoreFigures, after: ScoreFigures, settings: Watching) -> Finding:
    return Finding(time.time(), part, before.harm, after.harm, settings.switching)
