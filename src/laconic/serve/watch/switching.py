"""What is done about a model that scores too differently: parts go to fp32, worst first, until it is enough."""

from __future__ import annotations

import time
from dataclasses import dataclass

from laconic.serve.scorer import Scorer
from laconic.serve.settings import Watching
from laconic.serve.watch.culprit import Evidence, blame
from laconic.serve.watch.score_drift import ScoreFigures, exceeded

__all__ = ["MODEL", "Finding", "settle"]

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
