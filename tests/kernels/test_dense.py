"""Dense layers in int8 and dot products: all kernels alike bit for bit, and close to float64."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from laconic.kernels import available, load
from laconic.kernels.cpu import _native
from tests.cases import each

NATIVE = [name for name in available() if name != "reference"]
NARROW = ["avx2 without AVX-512"] if "avx2" in NATIVE else []


def layers(generator, sizes, *, equal, fixed):
    found = []
    for inputs, outputs in pairwise(sizes):
        found.append(
            (
                generator.integers(-127, 128, (outputs, inputs)).astype(np.int8),
                generator.uniform(1e-4, 1e-2, outputs).astype(np.float32),
                generator.normal(size=outputs).astype(np.float32) if generator.random() < 0.8 else None,
                generator.uniform(0.1, 3, inputs).astype(np.float32) if equal else None,
                np.array([-1.5, 2.5], np.float32) if fixed else None,
                bool(generator.random() < 0.7),
            )
        )
    return found


def run(name, parts, x, threads=1):
    chain = _native.load("avx2").int8_layers(wide=False) if name in NARROW else load(name).int8_layers()
    for layer in parts:
        chain.add(*layer)
    out = np.full((len(x), len(parts[-1][0])), np.nan, np.float32)
    chain.run(x, out, threads)
    return out


@given(
    st.lists(st.integers(1, 90), min_size=2, max_size=4),
    st.integers(0, 101),
    st.booleans(),
    st.booleans(),
    st.sampled_from([0.0, 1e-20, 1.0, 1e3]),
    st.integers(0, 2**31),
    st.integers(1, 3),
)
def test_layers_agree_bit_for_bit(sizes, samples, equal, fixed, size, seed, threads):
    generator = np.random.default_rng(seed)
    parts = layers(generator, sizes, equal=equal, fixed=fixed)
    x = (generator.normal(size=(samples, sizes[0])) * size).astype(np.float32)
    expected = run("reference", parts, x)
    for name in NATIVE + NARROW:
        np.testing.assert_array_equal(run(name, parts, x, threads).view(np.uint32), expected.view(np.uint32))


@each("name", available())
@each("fixed", [False, True])
def test_a_layer_is_right_within_the_rounding_of_its_inputs(name, fixed):
    generator = np.random.default_rng(7)
    (weights, scales, _, _, _, _), *_ = layers(generator, [300, 70], equal=False, fixed=False)
    biases = generator.normal(size=70).astype(np.float32)
    x = generator.uniform(-1.5, 2.5, (50, 300)).astype(np.float32)
    out = run(
        name,
        [(weights, scales, biases, None, np.array([-1.5, 2.5], np.float32) if fixed else None, False)],
        x,
    )
    exact = x.astype(np.float64) @ (weights * scales[:, None].astype(np.float64)).T + biases
    # an input is off by half a code, at the ends of the range by one, as zero is rounded
    bound = 4.0 / 255 * (np.abs(weights) * scales[:, None]).sum(axis=1)
    assert (np.abs(out - exact) <= bound).all()


@given(
    st.integers(0, 20),
    st.integers(1, 40),
    st.integers(1, 70),
    st.integers(0, 1),
    st.integers(0, 2**31),
    st.integers(1, 3),
)
def test_dot_products_agree_bit_for_bit(samples, count, dim, keep, seed, threads):
    vectors = np.random.default_rng(seed).normal(size=(samples, count, dim)).astype(np.float32)
    width = keep * dim + count * (count - 1) // 2
    expected = np.full((samples, width), np.nan, np.float32)
    load("reference").interact(vectors, keep, expected, 1)
    for name in NATIVE + NARROW:
        out = np.full_like(expected, np.nan)
        if name in NARROW:
            _native.load("avx2").interact(vectors, keep, out, threads, wide=False)
        else:
            load(name).interact(vectors, keep, out, threads)
        np.testing.assert_array_equal(out.view(np.uint32), expected.view(np.uint32))
    exact = np.einsum("bid,bjd->bij", vectors.astype(np.float64), vectors.astype(np.float64))
    rows, columns = np.tril_indices(count, -1)
    np.testing.assert_allclose(
        expected[:, keep * dim :], exact[:, rows, columns], atol=dim * 25 * dim * 2**-24
    )


@each("name", available())
def test_what_does_not_fit_is_refused(name):
    chain = load(name).int8_layers()
    weights, ones = np.ones((3, 5), np.int8), np.ones(3, np.float32)
    with pytest.raises(ValueError, match="no layers"):
        chain.run(np.zeros((1, 5), np.float32), np.zeros((1, 3), np.float32), 1)
    with pytest.raises(ValueError, match="wrong length"):
        chain.add(weights, np.ones(2, np.float32), None, None, None, True)
    for range in ([0.5, 1.0], [-1.0, np.inf], [np.nan, 1.0]):
        with pytest.raises(ValueError, match="must be finite and hold 0"):
            chain.add(weights, ones, None, None, np.array(range, np.float32), True)
    chain.add(weights, ones, None, None, None, True)
    with pytest.raises(ValueError, match="outputs of the layer before"):
        chain.add(weights, ones, None, None, None, True)
    with pytest.raises(ValueError, match="wrong shape"):
        chain.run(np.zeros((1, 4), np.float32), np.zeros((1, 3), np.float32), 1)
    with pytest.raises(ValueError, match="wrong shape"):
        load(name).interact(np.zeros((1, 3, 2), np.float32), 1, np.zeros((1, 4), np.float32), 1)
