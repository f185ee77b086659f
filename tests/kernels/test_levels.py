"""Levels: small and large values are as precise, all kernels agree, and what is not finite shows."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from laconic import kernels
from tests.cases import each

ALL = [kernels.load(name) for name in kernels.available()]


def there_and_back(backend, x, counts):
    levels, out, bases = np.empty_like(x), np.empty_like(x), np.empty(len(counts), np.int32)
    backend.to_levels(x, counts, levels, bases)
    backend.from_levels(levels, counts, bases, out)
    return levels, bases, out


@settings(max_examples=80, deadline=None)
@given(arrays(np.float32, st.integers(0, 70), elements=st.floats(width=32)), st.integers(0, 3))
def test_all_kernels_agree_and_errors_are_at_most_a_ninth(x, cut):
    counts = np.array([min(cut, len(x)), len(x) - min(cut, len(x))])
    results = [there_and_back(backend, x, counts) for backend in ALL]
    for levels, bases, out in results:
        assert levels.tobytes() == results[0][0].tobytes()
        assert bases.tolist() == results[0][1].tolist()
        assert np.array_equal(out, results[0][2], equal_nan=True)
    for layer, back in zip(np.split(x, counts[:1]), np.split(results[0][2], counts[:1]), strict=True):
        sizes = np.abs(layer.astype(np.float64))
        if not np.isfinite(sizes).all() or sizes.max(initial=0) >= 3.1e38:
            assert np.isnan(back).all()
            continue
        counted = sizes >= max(sizes.max(initial=0) * 2.0**-24, 2.0**-126)
        assert (np.abs(back - layer.astype(np.float64))[counted] <= sizes[counted] / 9).all()
        assert (np.abs(back.astype(np.float64)) <= sizes * 1.25 + 2.0**-126).all()
        assert (np.sign(back)[counted] == np.sign(layer)[counted]).all()


@each("backend", ALL)
def test_levels_that_there_are_none_of_show(backend):
    levels = np.array([5.2, -5.4, 101.0, np.nan, np.inf, 0.2], np.float32)
    out = np.empty_like(levels)
    backend.from_levels(levels, np.array([6]), np.array([400], np.int32), out)
    assert out[0] == -out[1] > 0
    assert np.isnan(out[2:5]).all()
    assert out[5] == 0


@each("backend", ALL)
def test_what_does_not_fit_is_refused(backend):
    x, bases = np.ones(4, np.float32), np.zeros(1, np.int32)
    with pytest.raises(ValueError, match="counts"):
        backend.to_levels(x, np.array([3]), x.copy(), bases)
    with pytest.raises(ValueError, match="bases"):
        backend.from_levels(x, np.array([4]), np.array([5000], np.int32), x.copy())
