"""What to answer where a score is no finite number: is it the request, or the model?"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from laconic.serve.query import Query
from laconic.serve.refusal import Refusal
from laconic.serve.scorer import Scorer

__all__ = ["not_finite"]


def not_finite(scorer: Scorer, query: Query, probability_B: NDArray[np.float32]) -> Refusal:
    """Name the first sample; 400 where its score is finite once its dense features are 0, else 500."""
    sample = int(np.argmin(np.isfinite(probability_B)))
    one = query.only(sample)
    _, lookups = one.features()
    if not np.isfinite(scorer.score(np.zeros_like(one.dense_BF), lookups)).all():
        return Refusal(500, f"model: sample {sample}: the score is not a number; the artefact may be damaged")
    feature = int(np.argmax(np.abs(one.dense_BF[0])))
    return Refusal(
        400,
        f"request: sample {sample}: expected dense features that the model can compute with, got "
        f"{scorer.signature.schema.dense[feature]!r} = {one.dense_BF[0, feature]:g} (as the model takes it), which makes the "
        "score not a number; send values as large as those it was trained on",
    )
