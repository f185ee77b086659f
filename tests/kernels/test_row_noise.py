"""Noise of rounding that updates count: formulas, all kernels to the bit, and what is refused.

Shapes: ``R`` rows of a table, ``D`` columns, ``C`` contributions, ``P`` parts.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from laconic.kernels import Optimizer, RowNoise, RowTable, RowUpdate
from tests.cases import each
from tests.kernels.test_rows import ALL, assert_same, every_backend, every_type, longs, situations, values

F = np.float32


# ---- what it computes ---------------------------------------------------------------------------


def example(backend, dtype, optimizer):
    """Update rows 2 and 0 by rounded and exact gradients; returns variances and figures.

    ===  =======================  ==========  =======  ======================  ======
    row  contributions            of a step   rounded  square of the sum       signal
    ===  =======================  ==========  =======  ======================  ======
    2    (2, 4) and (1, 1)        0 and 6     0 + 1    (9 + 25) / 2 = 17       16
    0    (6, 8)                   12          24       (36 + 64) / 2 = 50      26
    ===  =======================  ==========  =======  ======================  ======

    A step of 6 has a variance of 6, but entries of (1, 1) have a mean square of 1 only.
    """
    weight = np.ones((3, 2), dtype)
    state = None if optimizer == Optimizer.SGD else np.array([119, 0, 8], dtype)
    rows, grads = longs(2, 0, 2), np.array([[2, 4], [6, 8], [1, 1]], dtype)
    noise = RowNoise(
        variance=np.array([0.5, 7, 0.25], dtype),
        parts=longs(3, 1, 3),
        grid_steps=np.array([0, 12, 6], dtype),
        figures=np.array([[9.0, 9], [1, 2], [9, 9], [0, 0]]),
        samples=1 / 8,
    )
    lr, eps = (0.5, 0.0) if optimizer == Optimizer.SGD else (4.0, 3.0)
    order = np.argsort(rows, kind="stable")
    update = RowUpdate(optimizer, lr, eps)
    assert backend.update_rows(RowTable(weight, state), rows, order, grads, None, update, noise) == 2
    return noise.variance.tolist(), noise.figures.tolist()


@every_backend
@every_type
def test_sgd_makes_its_rate_squared_of_the_variance_of_rounding(backend, dtype):
    found, _ = example(backend, dtype, Optimizer.SGD)
    assert found == [0.5 + 0.25 * 24, 7, 0.25 + 0.25 * 1]


@every_backend
@every_type
def test_adagrad_makes_the_square_of_its_own_factor_of_it(backend, dtype):
    """Factors are 4 / (sqrt(119 + 50) + 3) = 1/4 and 4 / (sqrt(8 + 17) + 3) = 1/2."""
    found, _ = example(backend, dtype, Optimizer.ROWWISE_ADAGRAD)
    assert found == [0.5 + 24 / 16, 7, 0.25 + 1 / 4]


@every_backend
@every_type
@each("optimizer", Optimizer)
def test_figures_are_the_cost_of_the_noise_before_the_update_and_of_noise_of_one(backend, dtype, optimizer):
    """Half of two columns times samples and signal: 1/8 * 26 of part 1, 1/8 * 16 of part 3."""
    _, figures = example(backend, dtype, optimizer)
    assert figures == [[9, 9], [1 + 3.25 * 0.5, 2 + 3.25], [9, 9], [2 * 0.25, 2]]


@every_backend
@every_type
def test_a_gradient_that_is_less_than_its_noise_costs_nothing(backend, dtype):
    """Two gradients cancel, so their sum has no signal; the noise of both is in the row."""
    weight, variance, figures = np.zeros((1, 2), dtype), np.ones(1, dtype), np.zeros((1, 2))
    noise = RowNoise(variance, longs(0, 0), np.full(2, 6, dtype), figures, 100.0)
    grads = np.array([[30, -30], [-30, 30]], dtype)
    update = RowUpdate(Optimizer.SGD, 1.0, 0.0)
    backend.update_rows(RowTable(weight, None), longs(0, 0), longs(0, 1), grads, None, update, noise)
    assert figures.tolist() == [[0, 0]]
    assert variance.tolist() == [1 + 6 + 6]


@every_backend
def test_without_contributions_nothing_is_counted(backend):
    weight, variance, figures = np.ones((2, 3), F), np.ones(2, F), np.ones((1, 2))
    noise = RowNoise(variance, longs(), np.empty(0, F), figures, 1.0)
    none, update = longs(), RowUpdate(Optimizer.SGD, 1.0, 0.0)
    assert (
        backend.update_rows(RowTable(weight, None), none, none, np.empty((0, 3), F), None, update, noise) == 0
    )
    assert (variance == 1).all()
    assert (figures == 1).all()


# ---- all of them alike --------------------------------------------------------------------------


def updated(backend, given, noise):
    """Update copies of a table's rows; returns weight, state, variance and figures."""
    table, states, rows, grads, grad_index, update = given
    weight = table.copy()
    state = None if update.optimizer == Optimizer.SGD else states.copy()
    if noise is not None:
        noise = noise._replace(variance=noise.variance.copy(), figures=noise.figures.copy())
    order = np.argsort(rows, kind="stable")
    distinct = backend.update_rows(RowTable(weight, state), rows, order, grads, grad_index, update, noise)
    assert distinct == len(set(rows.tolist()))
    kept = () if noise is None else (noise.variance, noise.figures)
    return weight, states if state is None else state, *kept


@settings(max_examples=80)
@given(
    situations(),
    st.booleans(),
    st.sampled_from(Optimizer),
    st.sampled_from([0.01, 1.0, 3e-40, 1e30]),
    st.sampled_from([1.0, 64.0, 1e7]),
    st.sampled_from([0.0, 0.5, 1.0]),
)
def test_every_backend_counts_the_same_bits(situation, indirect, optimizer, lr, samples, exact):
    rng, dtype, cols, count, rows, edges = situation
    parts_R = rng.integers(0, 4, count)  # contributions of one row are of one part
    states = np.where(rng.random(count) < 0.5, 0, np.abs(values(rng, count, dtype, edges)))
    grads = values(rng, (9 if indirect else len(rows), cols), dtype, edges)
    grad_index = rng.integers(0, 9, len(rows)) if indirect else None
    steps = np.where(rng.random(len(rows)) < exact, 0, np.abs(values(rng, len(rows), dtype, edges)))
    table = values(rng, (count, cols), dtype, edges)
    noise = RowNoise(
        np.abs(values(rng, count, dtype, edges)),
        parts_R[rows],
        steps.astype(dtype),
        np.abs(rng.standard_normal((4, 2))),
        samples,
    )
    given = table, states.astype(dtype), rows, grads, grad_index, RowUpdate(optimizer, lr, 1e-8)
    results = [updated(backend, given, noise) for backend in ALL]
    for backend, result in zip(ALL, results, strict=True):
        for actual, expected in zip(result, results[0], strict=True):
            assert_same(actual.ravel(), expected.ravel(), backend.name)
        for counted, plain in zip(result, updated(backend, given, None), strict=False):
            assert_same(counted.ravel(), plain.ravel(), f"{backend.name}, with noise and without")
        untouched = np.setdiff1d(np.arange(count), rows)
        assert result[2][untouched].tobytes() == noise.variance[untouched].tobytes()


@each("dtype", [np.float32, np.float64])
@each("optimizer", Optimizer)
def test_steps_on_finite_values_agree_byte_by_byte(dtype, optimizer):
    """Several steps, each on what the last one left; there is no NaN whose bits are open."""
    results = []
    for backend in ALL:
        rng = np.random.default_rng(3)
        weight, state = values(rng, (30, 17), dtype), np.zeros(30, dtype)
        variance, figures = np.zeros(30, dtype), np.zeros((3, 2))
        for _ in range(5):
            rows = rng.integers(0, 30, 80)
            grads = rng.standard_normal((80, 17)).astype(dtype)
            steps = np.where(rng.random(80) < 0.3, 0, rng.random(80) * 5).astype(dtype)
            noise = RowNoise(variance, rows % 3, steps, figures, 512.0)
            table = RowTable(weight, None if optimizer == Optimizer.SGD else state)
            update = RowUpdate(optimizer, 0.05, 1e-8)
            backend.update_rows(table, rows, np.argsort(rows, kind="stable"), grads, None, update, noise)
        assert all(np.isfinite(x).all() for x in (weight, state, variance, figures))
        assert (variance > 0).any()
        assert (figures > 0).all()
        results.append([x.tobytes() for x in (weight, state, variance, figures)])
    assert all(result == results[0] for result in results)


# ---- what it refuses ----------------------------------------------------------------------------


def refused(backend, **changes):
    """Update two of three rows with one argument of the noise changed; rows stay as they were."""
    weight, grads = np.arange(6, dtype=F).reshape(3, 2), np.ones((2, 2), F)
    given = {
        "variance": np.zeros(3, F),
        "parts": longs(0, 1),
        "grid_steps": np.ones(2, F),
        "figures": np.zeros((2, 2)),
        "samples": 4.0,
    }
    given |= {name: made(weight, grads) if callable(made) else made for name, made in changes.items()}
    table, update = RowTable(weight, None), RowUpdate(Optimizer.SGD, 0.1, 0.0)
    try:
        backend.update_rows(table, longs(2, 1), longs(1, 0), grads, None, update, RowNoise(**given))
    finally:
        assert weight.tolist() == [[0, 1], [2, 3], [4, 5]]
        assert (grads == 1).all()


@every_backend
@each(
    ("changes", "message"),
    [
        ({"variance": np.zeros(2, F)}, "length of noise.variance: expected 3, got 2"),
        ({"variance": np.zeros(4, F)}, "length of noise.variance: expected 3, got 4"),
        ({"parts": longs(0)}, "length of noise.parts: expected 2, got 1"),
        ({"parts": longs(0, 1, 0)}, "length of noise.parts: expected 2, got 3"),
        ({"parts": longs(0, 2)}, r"noise.parts\[1\]: expected a row of noise.figures below 2, got 2"),
        ({"parts": longs(-1, 0)}, r"noise.parts\[0\]: expected a row of noise.figures below 2, got -1"),
        ({"figures": np.zeros((1, 2))}, r"noise.parts\[1\]: expected a row of noise.figures below 1, got 1"),
        ({"grid_steps": np.ones(3, F)}, "length of noise.grid_steps: expected 2, got 3"),
        ({"figures": np.zeros((2, 3))}, "noise.figures: expected two columns"),
        ({"variance": lambda weight, _: weight.reshape(-1)[1:4]}, "noise.variance and weight share memory"),
        ({"variance": lambda _, grads: grads.reshape(-1)[:3]}, "noise.variance and grads share memory"),
        ({"variance": lambda _, grads: grads.reshape(-1)[1:]}, "noise.variance and grads share memory"),
    ],
)
def test_noise_that_does_not_fit_is_refused_before_anything_is_written(backend, changes, message):
    with pytest.raises(ValueError, match=f"^update_rows: {message}$"):
        refused(backend, **changes)


@every_backend
@each(
    "changes",
    [
        {"variance": np.zeros(3)},
        {"variance": np.zeros(6, F)[::2]},
        {"parts": np.array([0, 1], np.int32)},
        {"grid_steps": np.ones(2)},
        {"figures": np.zeros((2, 2), F)},
        {"figures": np.zeros((2, 2), np.int64)},
        {"figures": np.zeros((2, 2), ">f8")},
        {"figures": np.zeros(4)},
        {"figures": np.zeros((2, 2, 1))},
        {"figures": np.zeros((2, 4))[:, ::2]},
        {"figures": np.zeros((2, 2), order="F")},
    ],
)
def test_arrays_of_noise_are_never_converted(backend, changes):
    with pytest.raises(TypeError):
        refused(backend, **changes)
