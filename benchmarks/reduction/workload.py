"""What is summed: a gradient for every rank, that all ranks can look up, so that each knows the true sum.

Shape legend: ``W`` words.
"""

from __future__ import annotations

from math import isqrt
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from laconic.config import Settings

__all__ = ["AnyWorkload", "Generated", "Recorded", "Supports"]

Floats = NDArray[np.float32]
Supports = Literal["identical", "independent"]


class Generated(Settings):
    """Normal numbers in random places, zeros elsewhere."""

    kind: Literal["generated"] = "generated"
    words: int = Field(1 << 24, ge=1)
    sparsity: float = Field(ge=0, le=1)
    """Share of zeros, to the word."""
    supports: Supports
    """Whether ranks have something in the same places, or each in its own."""

    @property
    def name(self) -> str:
        """Name of the workload."""
        return f"generated, {self.words:,} words"

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """As nearly a square as words allow, for who approximates matrices; a vector of the rest."""
        side = isqrt(self.words)
        rest = self.words - side * side
        return ((side, side), *([(rest,)] if rest else []))

    def gradient(self, rank: int) -> Floats:
        """Return what one rank has."""
        count = round((1 - self.sparsity) * self.words)
        places = np.random.default_rng([0, 0 if self.supports == "identical" else rank + 1])
        there = places.choice(self.words, count, replace=False, shuffle=False)
        x_W = np.zeros(self.words, np.float32)
        x_W[there] = np.random.default_rng([1, rank]).standard_normal(count, np.float32)
        return x_W


class Recorded(Settings):
    """Gradients of a model, from a file."""

    kind: Literal["recorded"] = "recorded"
    name: str
    file: Path
    """A row for every rank, float32 in numpy's format."""
    shapes: tuple[tuple[int, ...], ...]
    sparsity: float
    """Share of zeros on rank 0."""
    supports: Supports = "independent"

    def gradient(self, rank: int) -> Floats:
        """Return what one rank has."""
        return np.array(np.load(self.file, mmap_mode="r")[rank])


AnyWorkload = Annotated[Generated | Recorded, Field(discriminator="kind")]
