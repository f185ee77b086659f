"""Rows: gather, sum and scatter-add rows of a table, and the update of a table by sparse gradients.

All arithmetic is in the type of the arrays, float32 or float64. Every operation is rounded on its
own, in the order of the indices: a sum starts as a copy of its first row. Where several NaNs meet,
it is not specified which one comes out. Every argument is checked before anything is written.

``mean(g * g)`` of row-wise Adagrad is the sum that ``quantize/grid.py`` defines, divided by the
number of columns.

Shapes: ``R`` rows of a table, ``D`` columns, ``L`` look-ups, ``B`` bags, ``C`` contributions, ``G``
gradients.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby, pairwise

import numpy as np
import torch
from torch import Tensor

from laconic.kernels.operands import RowNoise, RowTable, RowUpdate
from laconic.kernels.optimizer import Optimizer
from laconic.kernels.reference.blocks.batch import Array, check
from laconic.kernels.reference.quantize.grid import sum_of_squares


def add_rows(out_RD: Array, index_L: Array, source_GD: Array, source_index_L: Array | None) -> None:
    """``out[index[i]] += source[source_index[i]]`` for every ``i`` in order."""
    _expect_types("add_rows", (out_RD, source_GD), (), (index_L, source_index_L))
    _expect_equal("add_rows: columns of source", out_RD.shape[1], source_GD.shape[1])
    _expect_one_each("add_rows", "source", index_L, source_GD, source_index_L)
    _expect_rows("add_rows: index", index_L, "out", out_RD)
    _expect_apart("add_rows: out and source", out_RD, source_GD)
    out, source = torch.from_numpy(out_RD), torch.tensor(source_GD)
    for row, place in zip(index_L.tolist(), _places(index_L, source_index_L), strict=True):
        out[row] += source[place]


def sum_bags(out_BD: Array, weight_RD: Array, index_L: Array, offsets: Array | None) -> None:
    """Fill ``out[b]`` with the sum of ``weight[index[i]]`` over the bag's ``i``.

    Without offsets, every bag has one ``i``.
    """
    _expect_types("sum_bags", (out_BD, weight_RD), (), (index_L, offsets))
    _expect_equal("sum_bags: columns of weight", out_BD.shape[1], weight_RD.shape[1])
    if offsets is None:
        _expect_equal("sum_bags: length of index", len(out_BD), len(index_L))
    else:
        _expect_equal("sum_bags: length of offsets", len(out_BD) + 1, len(offsets))
        _expect_offsets(offsets.tolist(), len(index_L))
    _expect_rows("sum_bags: index", index_L, "weight", weight_RD)
    _expect_apart("sum_bags: out and weight", out_BD, weight_RD)
    out, weight = torch.from_numpy(out_BD), torch.tensor(weight_RD)
    ends = range(len(out_BD) + 1) if offsets is None else offsets.tolist()
    for b, (begin, end) in enumerate(pairwise(ends)):
        rows = index_L[begin:end].tolist()
        out[b] = _sum([weight[row] for row in rows]) if rows else 0.0


def update_rows(
    table: RowTable,
    rows_C: Array,
    order_C: Array,
    grads_GD: Array,
    grad_index_C: Array | None,
    update: RowUpdate,
    noise: RowNoise | None = None,
) -> int:
    """Take one step of an optimizer on the rows that have gradients; return their number."""
    weight_RD, state_R = table
    states = () if state_R is None else (state_R,)
    _expect_types("update_rows", (weight_RD, grads_GD), states, (rows_C, order_C, grad_index_C))
    _expect_state(state_R, update.optimizer, weight_RD, grads_GD)
    check(weight_RD.shape[1] > 0, "update_rows: columns of weight: expected at least 1, got 0")
    _expect_equal("update_rows: columns of grads", weight_RD.shape[1], grads_GD.shape[1])
    _expect_one_each("update_rows", "grad", rows_C, grads_GD, grad_index_C)
    _expect_rows("update_rows: rows", rows_C, "weight", weight_RD)
    _expect_order(order_C.tolist(), rows_C.tolist())
    _expect_apart("update_rows: weight and grads", weight_RD, grads_GD)
    if noise is not None:
        _expect_noise(noise, weight_RD, grads_GD, rows_C)
    weight, grads = torch.from_numpy(weight_RD), torch.tensor(grads_GD)
    state = None if state_R is None else torch.from_numpy(state_R)
    lr, eps = weight.new_tensor(update.lr), weight.new_tensor(update.eps)
    places = list(_places(rows_C, grad_index_C))
    distinct = 0
    for row, run in groupby(order_C.tolist(), key=rows_C.tolist().__getitem__):
        contributions = list(run)
        gradient = _sum([grads[places[i]] for i in contributions])
        factor, square = lr, sum_of_squares(gradient) / weight.shape[1]
        if state is not None:
            state[row] += square
            factor = lr / (_root(state[row]) + eps)
        if noise is not None:
            rounded = _sum([_rounding_variance(noise, i, grads[places[i]]) for i in contributions])
            _count_noise(noise, row, int(noise.parts[contributions[0]]), (square, rounded, factor), weight)
        weight[row] -= factor * gradient
        distinct += 1
    return distinct


def _sum(rows: list[Tensor]) -> Tensor:
    total = rows[0].clone()
    for row in rows[1:]:
        total += row
    return total


def _rounding_variance(noise: RowNoise, i: int, gradient: Tensor) -> Tensor:
    """Variance of an entry of a contribution, from the grid that it was rounded to."""
    step = gradient.new_tensor(noise.grid_steps[i])
    if not step > 0:
        return gradient.new_zeros(())
    most, square = step * step / 6, sum_of_squares(gradient) / len(gradient)
    return square if square < most else most


def _count_noise(
    noise: RowNoise, row: int, part: int, figures: tuple[Tensor, Tensor, Tensor], weight: Tensor
) -> None:
    """Add what a row's noise costs, then let the update change that noise."""
    square, rounded, factor = figures
    variance = torch.from_numpy(noise.variance)
    signal = square - rounded if square > rounded else weight.new_zeros(())
    curvature = weight.new_tensor(noise.samples) * signal
    half = float(curvature) * weight.shape[1] / 2
    noise.figures[part] += (half * float(variance[row]), half)
    variance[row] = variance[row] + factor * factor * rounded


def _root(x: Tensor) -> Tensor:
    """Square root, correctly rounded: that of torch is not always."""
    with np.errstate(invalid="ignore"):
        return torch.from_numpy(np.asarray(np.sqrt(x.numpy())))


def _places(index: Array, other: Array | None) -> Iterator[int]:
    return iter(range(len(index)) if other is None else other.tolist())


# ---- arguments ----------------------------------------------------------------------------------


def _expect_types(
    where: str, matrices: tuple[Array, ...], vectors: tuple[Array, ...], indices: tuple[Array | None, ...]
) -> None:
    kind = matrices[0].dtype
    given = [index for index in indices if index is not None]
    fits = (
        kind in (np.float32, np.float64)
        and all(x.dtype == kind for x in (*matrices, *vectors))
        and all(index.dtype == np.int64 for index in given)
        and all(x.ndim == 2 for x in matrices)
        and all(x.ndim == 1 for x in (*vectors, *given))
        and all(x.flags.c_contiguous for x in (*matrices, *vectors, *given))
    )
    if not fits:
        raise TypeError(f"{where}: expected contiguous arrays of one floating type and of int64")


def _expect_equal(what: str, expected: int, actual: int) -> None:
    check(expected == actual, f"{what}: expected {expected}, got {actual}")


def _expect_one_each(where: str, name: str, index: Array, matrix: Array, other: Array | None) -> None:
    """Refuse unless every index has a row of the matrix, or an index of one."""
    rows = "grads" if name == "grad" else name
    if other is None:
        _expect_equal(f"{where}: rows of {rows}", len(index), len(matrix))
    else:
        _expect_equal(f"{where}: length of {name}_index", len(index), len(other))
        _expect_rows(f"{where}: {name}_index", other, rows, matrix)


def _expect_rows(name: str, index: Array, of: str, matrix: Array) -> None:
    rows = len(matrix)
    for i, row in enumerate(index.tolist()):
        check(0 <= row < rows, f"{name}[{i}]: expected a row of {of} below {rows}, got {row}")


def _expect_apart(what: str, a: Array, b: Array) -> None:
    check(not np.may_share_memory(a, b), f"{what} share memory")


def _expect_offsets(offsets: list[int], count: int) -> None:
    for b, (begin, end) in enumerate(pairwise([0, *offsets])):
        check(begin <= end <= count, f"sum_bags: offsets[{b}]: expected {begin}..{count}, got {end}")


def _expect_state(state: Array | None, optimizer: int, weight: Array, grads: Array) -> None:
    check(optimizer in tuple(Optimizer), f"update_rows: optimizer: expected 0 or 1, got {optimizer}")
    if optimizer == Optimizer.SGD:
        check(state is None, "update_rows: state: expected None for SGD, got an array")
        return
    if state is None:
        raise ValueError("update_rows: state: expected one value a row, got None")
    _expect_equal("update_rows: length of state", len(weight), len(state))
    _expect_apart("update_rows: state and weight", state, weight)
    _expect_apart("update_rows: state and grads", state, grads)


def _expect_noise(noise: RowNoise, weight: Array, grads: Array, rows: Array) -> None:
    for name, array in noise._asdict().items():
        if name != "samples" and not isinstance(array, np.ndarray):
            raise TypeError(f"update_rows(): incompatible function arguments: noise.{name}")
    figures = noise.figures
    if figures.dtype != np.float64 or figures.ndim != 2 or not figures.flags.c_contiguous:
        raise TypeError("update_rows(): incompatible function arguments: noise.figures")
    if not (figures.flags.writeable and noise.variance.flags.writeable):
        raise TypeError("update_rows(): incompatible function arguments: read-only noise")
    _expect_types("update_rows", (weight,), (noise.variance, noise.grid_steps), (noise.parts,))
    check(figures.shape[1] == 2, "update_rows: noise.figures: expected two columns")
    _expect_equal("update_rows: length of noise.variance", len(weight), len(noise.variance))
    _expect_equal("update_rows: length of noise.parts", len(rows), len(noise.parts))
    _expect_equal("update_rows: length of noise.grid_steps", len(rows), len(noise.grid_steps))
    _expect_rows("update_rows: noise.parts", noise.parts, "noise.figures", noise.figures)
    _expect_apart("update_rows: noise.variance and weight", noise.variance, weight)
    _expect_apart("update_rows: noise.variance and grads", noise.variance, grads)


def _expect_order(order: list[int], rows: list[int]) -> None:
    """Pairs (row, place) that ascend strictly name every place once, and sort the rows stably."""
    _expect_equal("update_rows: length of order", len(rows), len(order))
    for j, place in enumerate(order):
        inside = 0 <= place < len(rows)
        sorts = inside and (j == 0 or (rows[order[j - 1]], order[j - 1]) < (rows[place], place))
        check(sorts, f"update_rows: order[{j}]: expected what sorts rows stably, got {place}")
