"""What the server asks of a model, and what the watch asks of it beyond that.

Shape legend: ``B`` samples, ``F`` dense features.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from laconic.lookups import Lookups
from laconic.quant.population import Population
from laconic.serve.signature import Signature

__all__ = ["Scorer"]


class Scorer(Protocol):
    """A model in some mixture of precisions; immutable, so that threads may share it."""

    @property
    def version(self) -> str:
        """Which artefact this is; part of every answer."""
        ...

    @property
    def signature(self) -> Signature:
        """What it takes."""
        ...

    @property
    def budget(self) -> float | None:
        """Increase of normalized entropy that was allowed when it was made."""
        ...

    @property
    def population(self) -> Population | None:
        """Inputs that it was made for; None where that is not known."""
        ...

    @property
    def lowered(self) -> tuple[str, ...]:
        """Tables and layers below fp32, which can be raised."""
        ...

    def score(self, dense_BF: NDArray[np.float32], lookups: Lookups) -> NDArray[np.float32]:
        """Probabilities, float32, one for each sample."""
        ...

    def raised(self, part: str) -> Scorer:
        """Return the same model with one part in fp32; all others are shared, not copied."""
        ...

    def shadow(self) -> Scorer:
        """Return the same model in fp32 throughout."""
        ...
