"""Operands: arrays and numbers that operations of ``Kernels`` take together.

They are named tuples: C++ reads their fields by position.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from numpy.typing import NDArray

__all__ = ["LayerThresholds", "RowBags", "RowTable", "RowUpdate", "SparseParts"]

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
