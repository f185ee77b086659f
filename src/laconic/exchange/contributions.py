"""What rows are updated by: gradients of all ranks, and which row each of them goes to.

They are applied as they come, or held until somebody asks for a step.

Shape legend: ``C`` contributions to rows, ``D`` dimensions, ``U`` distinct rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from laconic import kernels
from laconic.exchange.noise import RoundedContributions
from laconic.exchange.ranks.stages import Stages
from laconic.exchange.ranks.transport import Message, Transport
from laconic.exchange.tables.keys import stable_order
from laconic.exchange.tables.layout import Layout

__all__ = ["Contributions", "HeldGradients", "UpdateObserver"]

Ints = NDArray[np.int64]
Rows = NDArray[Any]


@dataclass(frozen=True, slots=True, eq=False)
class Contributions:
    """Gradients, by the row that each of them goes to."""

    rows_C: Ints
    """Row of this rank's matrix that each contribution goes to."""
    order_C: Ints
    """Sorts contributions by row, those to one row in the order in which they are summed."""
    gradients: Rows
    gradient_C: Ints
    """Which of the gradients each contribution is."""
    rounded: RoundedContributions | None = None
    """How they had been rounded; None: nobody counts it."""

    @classmethod
    def joined(cls, parts: Sequence[Contributions]) -> Contributions:
        """Join those of several batches, which are summed in this order; at least one."""
        if len(parts) == 1:
            return parts[0]
        rows_C = np.concatenate([part.rows_C for part in parts])
        starts = np.cumsum([0, *(len(part.gradients) for part in parts)])
        gradient_C = np.concatenate(
            [part.gradient_C + start for part, start in zip(parts, starts[:-1], strict=True)]
        )
        gradients = np.concatenate([part.gradients for part in parts])
        rounded = [part.rounded for part in parts if part.rounded is not None]
        counted = RoundedContributions.joined(rounded) if len(rounded) == len(parts) else None
        return cls(rows_C, stable_order(rows_C), gradients, gradient_C, counted)

    def sums(self) -> tuple[Ints, Rows]:
        """Distinct rows, and the sum of the gradients of each."""
        rows_C = self.rows_C[self.order_C]
        first_U = np.flatnonzero(np.diff(rows_C, prepend=-1))
        sums_UD = np.empty((len(first_U), self.gradients.shape[1]), self.gradients.dtype)
        index, offsets = self.gradient_C[self.order_C], np.append(first_U, len(rows_C))
        kernels.active().sum_bags(sums_UD, self.gradients, index, offsets)
        return rows_C[first_U], sums_UD


class UpdateObserver(Protocol):
    """Who sees what rows are updated by."""

    def note(self, rows_C: Ints, gradients: Rows, gradient_C: Ints) -> None:
        """Take rows, gradients, and the gradient of each row, before they are used."""
        ...


class HeldGradients:
    """What came to a rank's rows and has not been applied, from one batch or several."""

    def __init__(self) -> None:
        self._parts: list[Contributions] = []

    def add(self, came: Contributions) -> None:
        """Keep these, in memory that nobody overwrites."""
        self._parts.append(replace(came, gradients=came.gradients.copy()))

    def drop(self) -> None:
        """Forget all."""
        self._parts.clear()

    def scale(self, factor: float) -> None:
        """Multiply all that is held."""
        with np.errstate(invalid="ignore"):  # what is not finite stays so, as in torch
            for part in self._parts:
                np.multiply(part.gradients, part.gradients.dtype.type(factor), out=part.gradients)
                if part.rounded is not None:
                    part.rounded.scale(factor)

    def take(self) -> Contributions | None:
        """Return all, and forget them; None where there is nothing."""
        if not self._parts:
            return None
        joined = Contributions.joined(self._parts)
        self.drop()
        return joined

    def square(self, layout: Layout, transport: Transport) -> Stages[float]:
        """Return the sum of squares of all rows' gradients, over all ranks.

        Gradients are summed row by row first. Replicas count once. All ranks get the same number.
        """
        own, ranks = np.zeros(1), layout.ranks
        if self._parts:
            rows_U, sums_UD = Contributions.joined(self._parts).sums()
            counted_U = ~layout.is_replica(rows_U) if layout.rank else slice(None)
            own[0] = np.square(sums_UD[counted_U], dtype=np.float64).sum()
        everyone = np.empty(ranks)
        swapped = transport.begin_swap(everyone, Message.same(own, ranks), np.ones(ranks, np.int64))
        yield
        swapped()
        return float(everyone.sum())
