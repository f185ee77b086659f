"""Thresholding: which entries are kept, in which order, and that all kernels agree to the bit.

Shapes: ``B`` rows, ``D`` columns.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from laconic import kernels
from tests.cases import each

ALL = [kernels.load(name) for name in kernels.available()]
every_backend = pytest.mark.parametrize("backend", ALL, ids=lambda backend: backend.name)
every_method = pytest.mark.parametrize("method", [0, 1], ids=["laplace", "topk"])
LAPLACE, TOP_K = 0, 1
EDGES = [np.nan, -np.nan, np.inf, -np.inf, -0.0, 0.0, 1e-45, -1e-45, 1e-38, 3.4e38, -3.4e38, 1.0, -1.0]


def threshold(backend, x_BD, keep, method):
    """Return places and values, and check that nothing was written beyond them."""
    x_BD = np.ascontiguousarray(x_BD, np.float32)
    places, values = np.full(x_BD.size, -7), np.full(x_BD.size, 7, np.float32)
    count = backend.threshold_rows(x_BD, keep, method, places, values)
    if backend.name == "reference":
        assert (places[count:] == -7).all()
        assert (values[count:] == 7).all()
    return places[:count], values[:count]


def kept(backend, x_BD, keep, method):
    """Return a mask."""
    places, values = threshold(backend, x_BD, keep, method)
    x_BD = np.asarray(x_BD, np.float32)
    mask_DB = np.zeros(x_BD.T.shape, bool)
    mask_DB.reshape(-1)[places] = True
    assert values.tobytes() == x_BD.T[mask_DB].tobytes()
    return mask_DB.T


@every_backend
def test_top_k_keeps_the_largest_and_of_equal_ones_those_further_left(backend):
    x_BD = [[1, -4, 3, 2], [5, 5, -5, 5], [0, 0, 1, 0]]
    assert kept(backend, x_BD, 0.5, TOP_K).tolist() == [
        [False, True, True, False],
        [True, True, False, False],
        [False, False, True, False],
    ]


@every_backend
@each(("keep", "k"), [(0.001, 1), (0.1, 1), (0.15, 2), (0.249, 2), (0.25, 3), (1.0, 10)])
def test_top_k_rounds_the_share_and_keeps_at_least_one(backend, keep, k):
    assert kept(backend, [list(range(1, 11))], keep, TOP_K).sum() == k


@every_backend
def test_the_laplace_fit_is_over_entries_that_are_not_zero(backend):
    x_BD = np.array([[0, 0, 1, -2, 3, 6, 0, 0]], np.float32)
    # b = 3, m = 4; a quarter of 8 is half of 4: 3 ln 2 = 2.08
    assert kept(backend, x_BD, 0.25, LAPLACE).tolist() == [[False] * 4 + [True, True, False, False]]
    assert kept(backend, x_BD, 0.5, LAPLACE).tolist() == [[False, False] + [True] * 4 + [False, False]]


@every_backend
def test_the_laplace_fit_keeps_about_what_was_asked_of_laplace_rows(backend):
    rng = np.random.default_rng(3)
    x_BD = rng.laplace(size=(64, 500))
    x_BD[rng.random(x_BD.shape) < 0.5] = 0  # as after a ReLU
    for keep in (0.25, 0.1, 0.02):
        share = kept(backend, x_BD, keep, LAPLACE).mean()
        deviation = math.sqrt(keep / x_BD.size) + keep / math.sqrt(x_BD.size / 2)  # of the draw, of the fit
        assert abs(share - keep) < 5 * deviation


@every_backend
@every_method
def test_what_is_not_finite_travels_always_and_does_not_disturb_the_rest(backend, method):
    x_BD = np.array([[np.nan, 1, np.inf, -np.inf, 8, 0.5, -np.nan, 0.25]], np.float32)
    mask = kept(backend, x_BD, 0.125, method)[0]
    assert mask[[0, 2, 3, 6]].all()
    assert mask[[1, 5, 7]].tolist() == [False] * 3
    assert mask[4] == (method == LAPLACE)  # top-k has had its one


@every_backend
@every_method
def test_zeros_are_never_kept(backend, method):
    assert not kept(backend, [[0.0, -0.0, 0.0], [-0.0, 0.0, 0.0]], 1.0, method).any()


@every_backend
@every_method
@each("shape", [(0, 5), (5, 0), (0, 0)])
def test_nothing_has_nothing_to_keep(backend, method, shape):
    assert len(threshold(backend, np.zeros(shape), 0.5, method)[0]) == 0


@every_backend
def test_sums_beyond_float32_do_not_overflow(backend):
    x_BD = np.full((1, 16), 3e38, np.float32)
    x_BD[0, 3] = 1
    assert not kept(backend, x_BD, 0.1, LAPLACE).any()  # the threshold is beyond float32
    assert kept(backend, x_BD, 0.9, LAPLACE)[0].tolist() == [c != 3 for c in range(16)]


@every_backend
def test_places_ascend_column_by_column(backend):
    places, values = threshold(backend, [[1, 2], [3, 4], [5, 6]], 1.0, TOP_K)
    assert places.tolist() == [0, 1, 2, 3, 4, 5]
    assert values.tolist() == [1, 3, 5, 2, 4, 6]


@every_backend
@each(
    ("keep", "method", "room", "text"),
    [
        (0.0, 0, 6, "keep must be above 0 and at most 1"),
        (math.nan, 0, 6, "keep must be above 0 and at most 1"),
        (1.5, 0, 6, "keep must be above 0 and at most 1"),
        (0.5, 2, 6, "method must be 0 or 1"),
        (0.5, 0, 5, "places and values need room for every entry"),
    ],
)
def test_bad_arguments_are_refused(backend, keep, method, room, text):
    with pytest.raises(ValueError, match=text):
        backend.threshold_rows(
            np.ones((2, 3), np.float32), keep, method, np.empty(room, np.int64), np.empty(room, np.float32)
        )


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 2**32),
    st.integers(0, 20),
    st.sampled_from([0, 1, 2, 7, 8, 9, 16, 31, 64, 65, 300]),
    st.sampled_from([0.0, 0.05, 0.9]),
    st.sampled_from([1e-9, 0.02, 0.05, 0.1, 0.25, 0.5, 0.9, 1.0]),
    st.sampled_from([LAPLACE, TOP_K]),
)
def test_all_kernels_agree_to_the_bit(seed, rows, cols, edges, keep, method):
    rng = np.random.default_rng(seed)
    x_BD = (rng.standard_normal((rows, cols)) * 10.0 ** rng.integers(-3, 4, (rows, 1))).astype(np.float32)
    x_BD = np.where(rng.random(x_BD.shape) < 0.5, x_BD, np.float32(0))
    planted = rng.random(x_BD.shape) < edges
    x_BD[planted] = rng.choice(np.array(EDGES, np.float32), int(planted.sum()))
    expected = threshold(kernels.load("reference"), x_BD, keep, method)
    for backend in ALL:
        places, values = threshold(backend, x_BD, keep, method)
        assert places.tolist() == expected[0].tolist(), backend.name
        assert values.tobytes() == expected[1].tobytes(), backend.name
