"""The noise that rounding leaves in a rank's rows, and what it costs the loss; no message tells it.

Whoever owns a row knows the grid that its gradients were rounded to, the step that the optimizer
makes of them, and the row's gradients of this step. That is all an estimate needs:

* Rounding changes an entry of a gradient with a known variance; the optimizer turns it into noise
  of the row. One number a row adds it up.
* Squares of gradients are the curvature of the loss (the empirical Fisher information), so noise
  of variance ``v`` in a row costs ``samples * columns / 2 * mean(g * g) * v``.

Gradients are those of samples that have not been learnt yet, so this is what noise costs on unseen
samples. Their own noise is taken off. ``kernels.RowNoise`` has the formulas; design note 0011 says
what they predicted and what came true. Shape legend: ``P`` parts of tables, ``T`` tables, ``R``
rows of this rank, ``C`` contributions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from laconic.kernels import RowNoise

__all__ = ["NoiseCount", "RoundedContributions", "RoundingCost"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Rows = NDArray[Any]


@dataclass(frozen=True, slots=True, eq=False)
class RoundingCost:
    """What rounding cost the loss of a step, when all ranks last added it up."""

    rows_T: Floats
    """Loss that errors of looked-up rows cost, at the bounds of now."""
    gradients_T: Floats
    """Loss that the noise costs which rounded gradients have left in rows."""
    sent_T: Floats
    """Rows that were sent, of each table beside the others."""
    rows_error_T: Floats
    """Mean square error of rows at the bounds of now, beside their mean square."""
    gradients_error_T: Floats
    """Mean square error of gradients at the bounds of now, beside their mean square."""


@dataclass(frozen=True, slots=True, eq=False)
class RoundedContributions:
    """How gradients that came to a rank's rows had been rounded."""

    part_C: Ints
    """Part of a table that each contribution is of."""
    grid_step_C: Rows
    """Step of the grid that each was rounded to; 0: it is exact."""
    samples: int
    """Samples of the global batch."""

    @classmethod
    def of(cls, part_C: Ints, step_P: Rows, exact_C: NDArray[np.bool_], samples: int) -> RoundedContributions:
        """Make it of the grids of all parts, and of which contributions are exact all the same."""
        return cls(part_C, np.where(exact_C, step_P.dtype.type(0), step_P[part_C]), samples)

    def replaced(self, kept: Ints, part_V: Ints, grid_step_V: Floats) -> RoundedContributions:
        """Return it for some of the contributions, and for others after them."""
        return RoundedContributions(
            np.concatenate([self.part_C[kept], part_V]),
            np.concatenate([self.grid_step_C[kept], grid_step_V.astype(self.grid_step_C.dtype)]),
            self.samples,
        )

    def scale(self, factor: float) -> None:
        """Scale what gradients were rounded to, because these were multiplied."""
        np.multiply(self.grid_step_C, self.grid_step_C.dtype.type(abs(factor)), out=self.grid_step_C)

    @classmethod
    def joined(cls, batches: Sequence[RoundedContributions]) -> RoundedContributions:
        """Join those of several batches."""
        return cls(
            np.concatenate([each.part_C for each in batches]),
            np.concatenate([each.grid_step_C for each in batches]),
            sum(each.samples for each in batches),
        )


class NoiseCount:
    """The noise of a rank's rows, and what it has cost since somebody asked."""

    def __init__(self, rows: int, counted_P: NDArray[np.bool_], dtype: np.dtype[Any]) -> None:
        """``counted_P``: parts that this rank counts; replicas are counted by one rank."""
        self.variance_R: Rows = np.zeros(rows, dtype)  # memory that is not touched is not there
        self._counted_P, self._figures_P2 = counted_P, np.zeros((len(counted_P), 2))
        self._updates = 0

    def operand(self, rounded: RoundedContributions) -> RowNoise:
        """Return what an update needs to go on counting."""
        self._updates += 1
        return RowNoise(
            self.variance_R,
            rounded.part_C,
            rounded.grid_step_C,
            self._figures_P2,
            float(rounded.samples),
        )

    def take(self) -> Floats:
        """Return two figures for each part, 2 x P, and begin to count anew.

        The first is the loss that noise of gradients cost in a step, the second what noise of
        variance 1 in every looked-up row would cost.
        """
        figures_2P = np.where(self._counted_P, self._figures_P2.T / max(self._updates, 1), 0.0)
        self._figures_P2, self._updates = np.zeros_like(self._figures_P2), 0
        return figures_2P

    def reset(self) -> None:
        """Forget all noise, as of rows that come from elsewhere."""
        if self.variance_R.any():  # memory that was not touched stays so
            self.variance_R[:] = 0
        self._figures_P2, self._updates = np.zeros_like(self._figures_P2), 0

    def state(self) -> dict[str, Any]:
        """Return what a checkpoint of this rank needs beside the variances."""
        return {"figures": self._figures_P2.tolist(), "updates": self._updates}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take back what ``state`` returned."""
        self._figures_P2, self._updates = np.array(state["figures"]), int(state["updates"])
