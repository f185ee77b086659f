"""Operations on rows: what they compute, that all kernels agree to the bit, and what they refuse.

Shapes: ``R`` rows of a table, ``D`` columns, ``L`` look-ups, ``B`` bags, ``C`` contributions, ``G`` gradients.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from laconic import kernels
from laconic.kernels import Optimizer, RowTable, RowUpdate
from tests.cases import each

ALL = [kernels.load(name) for name in kernels.available()]
every_backend = pytest.mark.parametrize("backend", ALL, ids=lambda backend: backend.name)
every_type = pytest.mark.parametrize("dtype", [np.float32, np.float64])

EDGES = [np.nan, np.inf, -np.inf, -0.0, 0.0, 1e-45, 1e-38, 3e38, -3e38, 1e19, 1e-23]


def values(rng, shape, dtype, edges=0.0):
    x = (rng.standard_normal(shape) * 10.0 ** rng.integers(-3, 4, shape)).astype(dtype)
    planted = rng.random(shape) < edges
    x[planted] = rng.choice(EDGES, int(planted.sum()))
    return x


def longs(*numbers):
    return np.array(numbers, np.int64)


def assert_same(actual, expected, who):
    """Same bits, but for which of several NaNs comes out."""
    bits = np.int32 if expected.dtype == np.float32 else np.int64
    same = (actual.view(bits) == expected.view(bits)) | (np.isnan(actual) & np.isnan(expected))
    assert same.all(), who


@st.composite
def situations(draw):
    """A generator, a type, columns, rows of a table, look-ups into it, and how many values are odd."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    dtype = draw(st.sampled_from([np.float32, np.float64]))
    cols = draw(st.sampled_from([1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 32, 33, 64, 65, 128, 300]))
    rows, lookups = draw(st.integers(1, 40)), draw(st.integers(0, 60))
    return rng, dtype, cols, rows, rng.integers(0, rows, lookups), draw(st.sampled_from([0.0, 0.0, 0.02]))


# ---- what they compute --------------------------------------------------------------------------


@every_backend
@every_type
def test_rows_are_added_in_the_order_of_the_indices(backend, dtype):
    big, one = dtype(1 / np.finfo(dtype).eps), dtype(1)
    out = np.zeros((2, 3), dtype)
    source = np.array([[big * 4] * 3, [one] * 3, [-big * 4] * 3], dtype)
    backend.add_rows(out, longs(1, 1, 1), source, None)
    assert out.tolist() == [[0.0] * 3, [0.0] * 3]  # one is lost in the large value
    backend.add_rows(out, longs(1, 1, 1), source, longs(0, 2, 1))
    assert out.tolist() == [[0.0] * 3, [1.0] * 3]


@every_backend
@every_type
def test_a_bag_is_the_sum_of_its_rows_and_an_empty_bag_is_zero(backend, dtype):
    weight = np.arange(12, dtype=dtype).reshape(4, 3)
    out = np.full((4, 3), 7, dtype)
    backend.sum_bags(out, weight, longs(3, 0, 3, 1, 2), longs(0, 2, 2, 5, 5))
    assert out.tolist() == [[9, 11, 13], [0, 0, 0], [18, 21, 24], [0, 0, 0]]


@every_backend
@every_type
def test_without_offsets_rows_are_gathered_bit_by_bit(backend, dtype):
    weight = np.array([[-0.0, np.nan], [np.inf, 1e-45]], dtype)
    out = np.ones((3, 2), dtype)
    backend.sum_bags(out, weight, longs(1, 0, 0), None)
    assert out.tobytes() == weight[[1, 0, 0]].tobytes()


@every_backend
def test_offsets_may_use_a_part_of_the_index(backend):
    weight = np.arange(4, dtype=np.float32).reshape(4, 1)
    out = np.empty((1, 1), np.float32)
    backend.sum_bags(out, weight, longs(0, 1, 2, 3), longs(1, 3))
    assert out.item() == 3.0


@every_backend
@every_type
def test_sgd_subtracts_the_sum_of_a_rows_gradients(backend, dtype):
    weight = np.ones((3, 2), dtype)
    grads = np.array([[1, 2], [10, 20], [100, 200]], dtype)
    rows = longs(2, 0, 2, 2)
    order = np.argsort(rows, kind="stable")
    update = RowUpdate(Optimizer.SGD, 0.5, 0.0)
    assert backend.update_rows(RowTable(weight, None), rows, order, grads, longs(0, 1, 2, 0), update) == 2
    assert weight.tolist() == [[-4, -9], [1, 1], [-50, -101]]


@every_backend
@every_type
def test_rowwise_adagrad_keeps_one_mean_square_a_row(backend, dtype):
    weight = np.zeros((2, 2), dtype)
    state = np.array([7, 3.5], dtype)
    grads = np.array([[1, 2], [2, 5]], dtype)  # of row 1: (3, 7), mean square 29
    rows, order = longs(1, 1), longs(0, 1)
    update = RowUpdate(Optimizer.ROWWISE_ADAGRAD, 2.0, 0.5)
    assert backend.update_rows(RowTable(weight, state), rows, order, grads, None, update) == 1
    assert state.tolist() == [7, 32.5]
    factor = dtype(2) / (np.sqrt(dtype(32.5)) + dtype(0.5))
    assert weight.tolist() == [[0, 0], [-(factor * dtype(3)), -(factor * dtype(7))]]


@every_backend
@every_type
def test_squares_are_summed_in_eight_lanes(backend, dtype):
    """Seventeen values of which a sum in any other order loses the small ones, or keeps other ones."""
    g = np.array([1, 2.0**-13, 0, 0, 0, 0, 0, 3, 2.0**-12, 1, 0, 0, 0, 0, 0, 5, 2.0**-12], dtype)
    square = g * g
    lanes = np.array([(square[j] + square[j + 8]) for j in range(8)], dtype)
    lanes[0] += square[16]
    pairs = lanes[0::2] + lanes[1::2]
    total = (pairs[0] + pairs[1]) + (pairs[2] + pairs[3])
    weight, state = np.zeros((1, 17), dtype), np.zeros(1, dtype)
    update = RowUpdate(Optimizer.ROWWISE_ADAGRAD, 1.0, 1e-8)
    backend.update_rows(RowTable(weight, state), longs(0), longs(0), g[None], None, update)
    assert state[0] == total / dtype(17)


@every_backend
def test_nothing_to_do_is_fine(backend):
    none, empty = longs(), np.empty((0, 4), np.float32)
    table = np.ones((3, 4), np.float32)
    backend.add_rows(table, none, empty, None)
    backend.add_rows(table, none, table.copy(), none)
    backend.sum_bags(empty, table, none, None)
    backend.sum_bags(empty, table, none, longs(0))
    sgd, adagrad = (RowUpdate(optimizer, 1.0, 0.0) for optimizer in Optimizer)
    assert backend.update_rows(RowTable(table, None), none, none, empty, None, sgd) == 0
    nothing = RowTable(empty.copy(), np.empty(0, np.float32))
    assert backend.update_rows(nothing, none, none, empty, none, adagrad) == 0
    assert (table == 1).all()
    no_columns = np.empty((3, 0), np.float32)
    backend.add_rows(no_columns, longs(2), np.empty((1, 0), np.float32), None)
    backend.sum_bags(no_columns, np.empty((9, 0), np.float32), longs(8, 8, 8), None)


@every_backend
def test_inputs_may_be_read_only(backend):
    weight, index, out = np.ones((2, 2), np.float32), longs(1), np.empty((1, 2), np.float32)
    weight.flags.writeable = index.flags.writeable = False
    backend.sum_bags(out, weight, index, None)
    assert out.tolist() == [[1, 1]]


# ---- all of them alike --------------------------------------------------------------------------


@settings(max_examples=50)
@given(situations(), st.booleans())
def test_every_backend_adds_the_same_bits(situation, indirect):
    rng, dtype, cols, rows, index, edges = situation
    table = values(rng, (rows, cols), dtype, edges)
    source = values(rng, (9 if indirect else len(index), cols), dtype, edges)
    source_index = rng.integers(0, 9, len(index)) if indirect else None
    outs = [table.copy() for _ in ALL]
    for backend, out in zip(ALL, outs, strict=True):
        backend.add_rows(out, index, source, source_index)
        assert_same(out, outs[0], backend.name)


@settings(max_examples=50)
@given(situations(), st.booleans())
def test_every_backend_sums_the_same_bits(situation, bagged):
    rng, dtype, cols, rows, index, edges = situation
    weight = values(rng, (rows, cols), dtype, edges)
    bags = int(rng.integers(0, 20)) if bagged else len(index)
    offsets = np.sort(rng.integers(0, len(index) + 1, bags + 1)) if bagged else None
    outs = [np.full((bags, cols), 5, dtype) for _ in ALL]
    for backend, out in zip(ALL, outs, strict=True):
        backend.sum_bags(out, weight, index, offsets)
        assert_same(out, outs[0], backend.name)


@settings(max_examples=60)
@given(
    situations(),
    st.booleans(),
    st.sampled_from(Optimizer),
    st.sampled_from([0.01, 1.0, 3e-40, 1e30]),
    st.sampled_from([1e-8, 1e-10, 1.0, 1e-50]),
)
def test_every_backend_updates_to_the_same_bits(situation, indirect, optimizer, lr, eps):
    rng, dtype, cols, count, rows, edges = situation
    table = values(rng, (count, cols), dtype, edges)
    states = np.where(rng.random(count) < 0.5, 0, np.abs(values(rng, count, dtype, edges)))
    grads = values(rng, (9 if indirect else len(rows), cols), dtype, edges)
    grad_index = rng.integers(0, 9, len(rows)) if indirect else None
    order = np.argsort(rows, kind="stable")
    results = []
    for backend in ALL:
        weight = table.copy()
        state = None if optimizer == Optimizer.SGD else states.copy()
        update = RowUpdate(optimizer, lr, eps)
        distinct = backend.update_rows(RowTable(weight, state), rows, order, grads, grad_index, update)
        assert distinct == len(set(rows.tolist()))
        results.append((weight, states if state is None else state))
        for actual, expected in zip(results[-1], results[0], strict=True):
            assert_same(actual, expected, backend.name)


# ---- what they refuse ---------------------------------------------------------------------------

F = np.float32
REFUSALS = {
    "index too large": (
        "add_rows",
        lambda t: (t, longs(0, 3), np.ones((2, 2), F), None),
        r"add_rows: index\[1\]: expected a row of out below 3, got 3",
    ),
    "index below zero": (
        "add_rows",
        lambda t: (t, longs(0, -1), np.ones((2, 2), F), None),
        r"add_rows: index\[1\]: expected a row of out below 3, got -1",
    ),
    "source index": (
        "add_rows",
        lambda t: (t, longs(0, 0), np.ones((2, 2), F), longs(2**62, 0)),
        r"add_rows: source_index\[0\]: expected a row of source below 2, got 4611686018427387904",
    ),
    "length of the source index": (
        "add_rows",
        lambda t: (t, longs(0, 0), np.ones((2, 2), F), longs(0)),
        "add_rows: length of source_index: expected 2, got 1",
    ),
    "rows of the source": (
        "add_rows",
        lambda t: (t, longs(0, 0), np.ones((3, 2), F), None),
        "add_rows: rows of source: expected 2, got 3",
    ),
    "columns of the source": (
        "add_rows",
        lambda t: (t, longs(0), np.ones((1, 3), F), None),
        "add_rows: columns of source: expected 2, got 3",
    ),
    "source inside out": (
        "add_rows",
        lambda t: (t, longs(0), t[1:2], None),
        "add_rows: out and source share memory",
    ),
    "index of a bag": (
        "sum_bags",
        lambda t: (t, np.ones((5, 2), F), longs(0, 5, 9), None),
        r"sum_bags: index\[1\]: expected a row of weight below 5, got 5",
    ),
    "rows of the output": (
        "sum_bags",
        lambda t: (t, np.ones((5, 2), F), longs(0, 1), None),
        "sum_bags: length of index: expected 3, got 2",
    ),
    "length of the offsets": (
        "sum_bags",
        lambda t: (t, np.ones((5, 2), F), longs(0, 1), longs(0, 1, 2)),
        "sum_bags: length of offsets: expected 4, got 3",
    ),
    "offsets that fall": (
        "sum_bags",
        lambda t: (t, np.ones((5, 2), F), longs(0, 1), longs(0, 2, 1, 2)),
        r"sum_bags: offsets\[2\]: expected 2\.\.2, got 1",
    ),
    "offsets below zero": (
        "sum_bags",
        lambda t: (t, np.ones((5, 2), F), longs(0, 1), longs(-1, 0, 1, 2)),
        r"sum_bags: offsets\[0\]: expected 0\.\.2, got -1",
    ),
    "offsets beyond the index": (
        "sum_bags",
        lambda t: (t, np.ones((5, 2), F), longs(0, 1), longs(0, 1, 2, 3)),
        r"sum_bags: offsets\[3\]: expected 2\.\.2, got 3",
    ),
    "columns of the weight": (
        "sum_bags",
        lambda t: (t, np.ones((5, 3), F), longs(0, 1, 1), None),
        "sum_bags: columns of weight: expected 2, got 3",
    ),
    "weight that is the output": (
        "sum_bags",
        lambda t: (t, t, longs(0, 1, 2), None),
        "sum_bags: out and weight share memory",
    ),
}


def update(**changes):
    """Arguments of an update that would work, changed."""

    def arguments(table):
        given = {
            "weight": table,
            "state": np.ones(3, F),
            "rows": longs(2, 1),
            "order": longs(1, 0),
            "grads": np.ones((2, 2), F),
            "grad_index": None,
            "optimizer": 1,
        }
        weight, state, *gradients, optimizer = (given | changes).values()
        return RowTable(weight, state), *gradients, RowUpdate(optimizer, 0.1, 1e-8)

    return arguments


UPDATE_REFUSALS = {
    "optimizer": (update(optimizer=2), "update_rows: optimizer: expected 0 or 1, got 2"),
    "state of SGD": (update(optimizer=0), "update_rows: state: expected None for SGD, got an array"),
    "no state": (update(state=None), "update_rows: state: expected one value a row, got None"),
    "short state": (update(state=np.ones(2, F)), "update_rows: length of state: expected 3, got 2"),
    "row": (update(rows=longs(2, 3)), r"update_rows: rows\[1\]: expected a row of weight below 3, got 3"),
    "short order": (update(order=longs(0)), "update_rows: length of order: expected 2, got 1"),
    "order that does not sort": (
        update(order=longs(0, 1)),
        r"update_rows: order\[1\]: expected what sorts rows stably, got 1",
    ),
    "order that repeats": (
        update(order=longs(1, 1)),
        r"update_rows: order\[1\]: expected what sorts rows stably, got 1",
    ),
    "order that is not stable": (
        update(rows=longs(1, 1)),
        r"update_rows: order\[1\]: expected what sorts rows stably, got 0",
    ),
    "order outside": (
        update(order=longs(-1, 0)),
        r"update_rows: order\[0\]: expected what sorts rows stably, got -1",
    ),
    "rows of the gradients": (
        update(grads=np.ones((3, 2), F)),
        "update_rows: rows of grads: expected 2, got 3",
    ),
    "gradient": (
        update(grad_index=longs(0, 2)),
        r"update_rows: grad_index\[1\]: expected a row of grads below 2, got 2",
    ),
    "length of the gradient index": (
        update(grad_index=longs(0)),
        "update_rows: length of grad_index: expected 2, got 1",
    ),
    "columns of the gradients": (
        update(grads=np.ones((2, 3), F)),
        "update_rows: columns of grads: expected 2, got 3",
    ),
    "no columns": (
        lambda _: update(grads=np.ones((2, 0), F))(np.ones((3, 0), F)),
        "update_rows: columns of weight: expected at least 1, got 0",
    ),
    "gradients inside the weight": (
        lambda t: update(grads=t[1:])(t),
        "update_rows: weight and grads share memory",
    ),
    "state inside the weight": (
        lambda t: update(state=t.reshape(-1)[:3])(t),
        "update_rows: state and weight share memory",
    ),
}
REFUSALS |= {name: ("update_rows", *rest) for name, rest in UPDATE_REFUSALS.items()}


@every_backend
@each("name", REFUSALS)
def test_what_does_not_fit_is_refused_with_the_value_before_anything_is_written(backend, name):
    operation, arguments, message = REFUSALS[name]
    table = np.arange(6, dtype=F).reshape(3, 2)
    with pytest.raises(ValueError, match=f"^{message}$"):
        getattr(backend, operation)(*arguments(table))
    assert table.tolist() == [[0, 1], [2, 3], [4, 5]]


@every_backend
@each(
    "arguments",
    [
        (np.ones((6, 4), F)[::2], longs(0), np.ones((1, 4), F), None),
        (np.ones((3, 4), F)[:, ::2], longs(0), np.ones((1, 2), F), None),
        (np.ones((3, 4), F), np.array([0], np.int32), np.ones((1, 4), F), None),
        (np.ones((3, 4), F), longs(0), np.ones((1, 4), np.float64), None),
        (np.ones((3, 4), np.float16), longs(0), np.ones((1, 4), np.float16), None),
        (np.ones(4, F), longs(0), np.ones((1, 4), F), None),
        (np.ones((3, 4), F), longs(0, 1, 2)[::2], np.ones((2, 4), F), None),
    ],
)
def test_arrays_are_never_converted(backend, arguments):
    with pytest.raises(TypeError):
        backend.add_rows(*arguments)
