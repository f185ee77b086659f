"""Turned rows: all kernels agree to the bit, blocks that are not turned are copied, and what does not fit is refused."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from laconic import kernels

ALL = [kernels.load(name) for name in kernels.available()]
every = pytest.mark.parametrize("backend", ALL, ids=lambda backend: backend.name)
moderate = st.floats(-(2.0**50), 2.0**50, width=32)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_all_kernels_agree_in_place_and_aside(data):
    rows, cols = data.draw(st.integers(0, 9)), data.draw(st.integers(1, 70))
    x = data.draw(arrays(np.float32, (rows, cols), elements=moderate))
    axes = data.draw(arrays(np.float32, (cols, cols), elements=moderate, fill=st.just(np.float32(0.5))))
    cut = data.draw(st.integers(0, rows))
    counts, turned = np.array([cut, 0, rows - cut]), np.array(data.draw(st.tuples(*[st.booleans()] * 3)))
    results = []
    for backend in ALL:
        aside, place = np.full_like(x, np.nan), x.copy()
        backend.turn_rows(x, counts, turned, axes, aside)
        backend.turn_rows(place, counts, turned, axes, place)
        results += [aside.tobytes(), place.tobytes()]
    assert len(set(results)) == 1
    back = np.frombuffer(results[0], np.float32).reshape(x.shape)
    for begin, end, is_turned in ((0, cut, turned[0]), (cut, rows, turned[2])):
        if not is_turned:
            assert back[begin:end].tobytes() == x[begin:end].tobytes()


@every
def test_coordinates_are_products_with_the_columns(backend):
    x = np.array([[1, 2, 3], [0, -1, 4]], np.float32)
    axes = np.array([[1, 0, 2], [0, 1, 0], [10, 0, 0]], np.float32)
    out = np.empty_like(x)
    backend.turn_rows(x, np.array([2]), np.array([True]), axes, out)
    assert out.tolist() == [[31, 2, 2], [40, -1, 0]]


@every
@pytest.mark.parametrize(
    ("counts", "turned", "axes", "out", "what"),
    [
        ([3], [True], (4, 4), (2, 4), "counts"),
        ([1], [True], (4, 4), (2, 4), "counts"),
        ([-1, 3], [True, True], (4, 4), (2, 4), "counts"),
        ([2], [True, False], (4, 4), (2, 4), "turned"),
        ([2], [True], (3, 3), (2, 4), "axes"),
        ([2], [True], (4, 3), (2, 4), "axes"),
        ([2], [True], (4, 4), (3, 4), "out"),
    ],
)
def test_what_does_not_fit_is_refused(backend, counts, turned, axes, out, what):
    with pytest.raises(ValueError, match=what):
        backend.turn_rows(
            np.ones((2, 4), np.float32),
            np.array(counts),
            np.array(turned),
            np.ones(axes, np.float32),
            np.ones(out, np.float32),
        )
