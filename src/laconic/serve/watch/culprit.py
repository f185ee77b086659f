"""Which part's precision is to blame for scores that are too different, and what is done about it.

Parts are raised to fp32 one at a time, worst first, until the difference is small enough. That
works for tables and layers alike, and on the model that answers, not on a copy from disk: a table
whose rows were damaged in memory is found too.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from laconic.lookups import Lookups
from laconic.serve.engine import Scorer
from laconic.serve.settings import Watching
from laconic.serve.watch.score_drift import ScoreFigures, exceeded, score_figures

__all__ = ["MODEL", "Blame", "Evidence", "Finding", "blame", "settle"]


@dataclass(frozen=True, slots=True, eq=False)
class Evidence:
    """Samples and what the shadow says of them."""

    dense_BF: NDArray[np.float32]
    lookups: Lookups
    shadow_B: NDArray[np.float32]

    def figures(self, scorer: Scorer) -> ScoreFigures:
        """Compare a model with the shadow."""
        return score_figures(scorer.score(self.dense_BF, self.lookups), self.shadow_B)


@dataclass(frozen=True, slots=True)
class Blame:
    """A part, the model without its harm, and what remains."""

    part: str
    scorer: Scorer
    before: ScoreFigures
    after: ScoreFigures


def blame(scorer: Scorer, evidence: Evidence) -> Iterator[Blame]:
    """Name parts, worst first, each on top of those before; ask for the next only as long as that is not enough.

    The first answer takes one pass over the evidence for each part below fp32.
    """
    before = evidence.figures(scorer)
    while scorer.lowered:
        trials = []
        for part in scorer.lowered:
            raised = scorer.raised(part)
            trials.append(Blame(part, raised, before, evidence.figures(raised)))
        best = min(trials, key=lambda trial: trial.after.harm)
        yield best
        scorer, before = best.scorer, best.after


MODEL = "model"
"""The part that is all parts."""

_WORTH = 0.9
"""A part is to blame if raising it leaves less than this of the harm."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A part that was found to blame."""

    unix_s: float
    part: str
    harm_before: float
    harm_after: float
    switched: bool


def settle(
    live: Scorer, shadow: Scorer, evidence: Evidence, settings: Watching
) -> tuple[Scorer, list[Finding]]:
    """Return a model within all limits, and who was to blame; nobody, where it is within them already.

    Where no single part makes a difference, or half of all parts are not enough, it is the shadow.
    """
    before = evidence.figures(live)
    if not exceeded(before, settings, live.budget):
        return live, []
    scorer, findings = live, list[Finding]()
    most = max(1, len(live.lowered) // 2)
    for found in blame(live, evidence):
        if found.after.harm > found.before.harm * _WORTH or len(findings) == most:
            break
        findings.append(_finding(found.part, found.before, found.after, settings))
        scorer = found.scorer
        if not exceeded(found.after, settings, live.budget):
            return scorer, findings
    findings.append(_finding(MODEL, evidence.figures(scorer), evidence.figures(shadow), settings))
    return shadow, findings


def _finding(part: str, before: ScoreFigures, after: ScoreFigures, settings: Watching) -> Finding:
    return Finding(time.time(), part, before.harm, after.harm, settings.switching)
