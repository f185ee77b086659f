"""How far live scores are from the shadow's, over the last samples that both have scored.

::

    difference    mean |p - s|
    calibration   mean p / mean s - 1
    harm          mean KL(s || p) / entropy of the mean of s

``harm`` is by how much normalized entropy would rise if the shadow's probabilities were the true
ones; it is in the unit of the budget that an artifact was made with. A live score that is not a
number counts as wrong as can be. Where the shadow's is none, nothing can be said of the live one:
such samples must not get here. Shape legend: ``B`` samples; ``p_B`` live, ``s_B`` the shadow's.

Which part's precision is to blame, and what is done about it: parts are raised to fp32 one at a
time, worst first, until the difference is small enough. That works for tables and layers alike, and
on the model that answers, not on a copy from disk: a table whose rows were damaged in memory is
found too.
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
"""The part that is all parts."""
_WORTH = 0.9
"""A part is to blame if raising it leaves less than this of the harm."""


@dataclass(frozen=True, slots=True)
class ScoreFigures:
    """How far live scores are from the shadow's in one window."""

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


@dataclass(frozen=True, slots=True, eq=False)
class Evidence:
    """Samples and what the shadow says of them."""

    dense_BF: NDArray[np.float32]
    lookups: Lookups
    shadow_B: NDArray[np.float32]

    def figures(self, engine: Engine) -> ScoreFigures:
        """Compare a model with the shadow."""
        return score_figures(engine.score(self.dense_BF, self.lookups), self.shadow_B)


@dataclass(frozen=True, slots=True)
class Blame:
    """A part, the model without its harm, and what remains."""

    part: str
    engine: Engine
    before: ScoreFigures
    after: ScoreFigures


def blame(engine: Engine, evidence: Evidence) -> Iterator[Blame]:
    """Name parts, worst first, each on top of those before; ask for the next only as long as that is not enough.

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
    """Return a model within all limits, and who was to blame; nobody, where it is within them already.

    Where no single part makes a difference, or half of all parts are not enough, it is the shadow.
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
