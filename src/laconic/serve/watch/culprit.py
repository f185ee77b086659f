"""Which part's precision is to blame: raise one at a time to fp32, and see the difference shrink.

Works for tables and layers alike, and on the model that answers, not on a copy from disk: a table whose rows were damaged in memory is
found too.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from laconic.lookups import Lookups
from laconic.serve.scorer import Scorer
from laconic.serve.watch.score_drift import ScoreFigures, score_figures

__all__ = ["Blame", "Evidence", "blame"]


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
