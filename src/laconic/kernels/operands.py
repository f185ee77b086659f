"""Operands: arrays and numbers that operations of ``Kernels`` take together.

They are named tuples: C++ reads their fields by position.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from numpy.typing import NDArray

__all__ = ["LayerThresholds", "RowBags", "RowNoise", "RowTable", "RowUpdate", "SparseParts"]

Array = NDArray[Any]


class RowTable(NamedTuple):
    """A table of rows that an optimizer updates."""

    weight: Array
    """Rows of the table, a matrix."""
    state: Array | None
    """One number for each row; None for SGD."""


class RowUpdate(NamedTuple):
    """One step of an optimizer."""

    optimizer: int
    """A :class:`~laconic.kernels.optimizer.Optimizer`."""
    lr: float
    """Learning rate."""
    eps: float
    """What is added to the root of the state; SGD does not read it."""


class RowNoise(NamedTuple):
    """What rounding of gradients has put into rows, which an update counts.

    Unbiased rounding to a grid of step ``s`` changes an entry with a variance of ``s * s / 6`` on
    average, or of about its own mean square if that is less. The optimizer makes
    ``factor ** 2 * variance`` of it in the row. Noise of variance ``v`` in a row costs
    ``samples * columns / 2 * mean(g * g) * v`` of the loss, if the loss is the mean over samples
    and ``g`` its gradient: squares of gradients are the curvature (empirical Fisher).
    """

    variance: Array
    """Variance of an entry of each row, in the type of the rows; it is updated."""
    parts: Array
    """Row of ``figures`` that each contribution counts in, int64."""
    grid_steps: Array
    """Step of the grid to which each contribution was rounded, in the type of the rows; 0: it is
    exact."""
    figures: Array
    """float64, two columns that are added to: what the noise of rows costs the loss; and what noise
    of variance 1 in every row would."""
    samples: float
    """Samples of the global batch."""


class SparseParts(NamedTuple):
    """Several sparse tensors, back to back, as ``Kernels.compact`` writes each."""

    indices: Array
    """Indices of all parts, uint8."""
    index_bounds: Array
    """Where the index of each part begins, and where the last one ends."""
    values: Array
    """Values of all parts."""
    value_bounds: Array
    """Where the values of each part begin, and where the last ones end."""


class LayerThresholds(NamedTuple):
    """Layers of a gradient, and the magnitude from which on an entry of each is large."""

    bounds: Array
    """Where each layer begins, and where the last one ends."""
    thresholds: Array
    """One float32 for each layer, at least 0."""


class RowBags(NamedTuple):
    """Bags of ids, table by table, and how the rows of a bag are pooled."""

    ids: Array
    offsets: Array
    """Where each bag begins, and where the last one ends; bags of the first table come first."""
    weights: Array | None = None
    """One weight for each id; None: 1."""
    mean: bool = False
    """Whether the sum of a bag is divided by its number of ids; never with weights."""
