"""Rows in few bits: all kernels alike bit for bit, whatever the rows."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from laconic.kernels import available, load
from tests.cases import each

NATIVE = [name for name in available() if name != "reference"]
BITS = {2: 8, 3: 4, 4: 2}


def quantized(name, x, format, method, threads=1):
    width = (x.shape[1] * BITS[format] + 7) // 8 + (8 if format == 2 else 4)
    out = np.full((len(x), width), 0xA5, np.uint8)
    return load(name).quantize_rows(x, format, method, out, threads), out


@st.composite
def matrices(draw):
    generator = np.random.default_rng(draw(st.integers(0, 2**31)))
    rows, dim = draw(st.integers(0, 35)), draw(st.integers(1, 70))
    x = generator.normal(size=(rows, dim)) * draw(st.sampled_from([1e-38, 1e-19, 1e-7, 0.01, 1.0, 900.0]))
    x *= 10.0 ** generator.integers(-3, 2, (rows, 1))
    x += draw(st.sampled_from([0.0, 0.0, 1.0, -2e3]))
    kind = generator.integers(0, 6, rows)
    x[kind == 0, 0] *= 30  # an outlier
    x[kind == 1] = generator.integers(-1, 2) * 0.0  # constant, of either sign of 0
    x[kind == 2] = np.round(x[kind == 2])  # ties
    return x.clip(-65504, 65504).astype(np.float32)


@pytest.mark.parametrize("name", NATIVE)
@settings(max_examples=25)
@given(x=matrices(), format=st.sampled_from([2, 3, 4]), method=st.sampled_from([0, 1, 2]))
def test_kernels_agree_with_the_reference(name, x, format, method):
    refused, expected = quantized("reference", x, format, method)
    assert refused == -1
    refused, found = quantized(name, x, format, method)
    assert refused == -1
    np.testing.assert_array_equal(found, expected)


@each("name", available())
def test_large_rows_of_int8_have_ranges_too(name):
    x = np.array([[-1.7e38, 0.0, 1.7e38], [1e30, 2e30, 3e30]], np.float32)
    for method in range(3):
        refused, out = quantized(name, x, 2, method)
        assert refused == -1
        assert out[0, :3].tolist() == [0, 128, 255]


@each("name", available())
def test_the_first_row_that_does_not_fit_is_named(name):
    x = np.zeros((3000, 5), np.float32)
    x[2990, 1], x[1234, 4], x[2000, 0] = np.nan, np.inf, -65520.0
    for format in (3, 4):
        assert quantized(name, x, format, 1, threads=3)[0] == 1234
    x[1234, 4] = 0
    assert quantized(name, x, 3, 0, threads=3)[0] == 2000
    assert quantized(name, x, 2, 0, threads=3)[0] == 2990


@each("name", NATIVE)
def test_threads_change_nothing(name):
    x = np.random.default_rng(5).normal(size=(1700, 24)).astype(np.float32)
    np.testing.assert_array_equal(quantized(name, x, 3, 2)[1], quantized(name, x, 3, 2, threads=4)[1])


@each("name", available())
def test_wrong_arguments_are_refused(name):
    kernels, x = load(name), np.zeros((2, 4), np.float32)
    with pytest.raises(ValueError, match="out has the wrong shape"):
        kernels.quantize_rows(x, 3, 0, np.zeros((2, 7), np.uint8), 1)
    with pytest.raises(ValueError, match="format must be 2 to 4"):
        kernels.quantize_rows(x, 1, 0, np.zeros((2, 8), np.uint8), 1)
    with pytest.raises(ValueError, match="method must be 0 to 2"):
        kernels.quantize_rows(x, 3, 3, np.zeros((2, 6), np.uint8), 1)
    with pytest.raises(ValueError, match="rows have no numbers"):
        kernels.quantize_rows(np.zeros((2, 0), np.float32), 3, 0, np.zeros((2, 4), np.uint8), 1)
