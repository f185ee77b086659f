"""Bits of entries: the choice of ``threshold_rows``, values on their way, and that all kernels agree to the bit.

Shapes: ``B`` rows, ``D`` columns.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from laconic import kernels
from laconic.errors import FormatError

ALL = [kernels.load(name) for name in kernels.available()]
every_backend = pytest.mark.parametrize("backend", ALL, ids=lambda backend: backend.name)
EDGES = [np.nan, -np.nan, np.inf, -np.inf, -0.0, 0.0, 1e-45, -1e-45, 1e-38, 3.4e38, -3.4e38, 1.0, -1.0]


def matrix(seed, rows, cols, edges, apart):
    """Return some columns of a larger matrix, half of them 0."""
    rng = np.random.default_rng(seed)
    whole_BN = rng.standard_normal((rows, cols + apart)) * 10.0 ** rng.integers(-3, 4, (rows, 1))
    whole_BN = np.where(rng.random(whole_BN.shape) < 0.5, whole_BN, 0).astype(np.float32)
    planted = rng.random(whole_BN.shape) < edges
    whole_BN[planted] = rng.choice(np.array(EDGES, np.float32), int(planted.sum()))
    return whole_BN[:, apart:]


def chosen(backend, x_BD, keep, method):
    rows, cols = x_BD.shape
    bits, values = np.full(rows * -(-cols // 8), 0xAA, np.uint8), np.empty(x_BD.size, np.float32)
    count = backend.choose_bits(x_BD, keep, method, bits, values)
    return bits, values[:count]


@settings(max_examples=50, deadline=None)
@given(
    st.integers(0, 2**32),
    st.integers(0, 20),
    st.sampled_from([0, 1, 2, 7, 8, 9, 16, 31, 63, 64, 65, 130, 300]),
    st.sampled_from([0.0, 0.05, 0.9]),
    st.sampled_from([0, 3]),
    st.sampled_from([1e-9, 0.05, 0.1, 0.5, 1.0]),
    st.sampled_from([0, 1]),
)
def test_all_kernels_do_what_masks_do(seed, rows, cols, edges, apart, keep, method):
    x_BD = matrix(seed, rows, cols, edges, apart)
    places = np.empty(x_BD.size, np.int64)
    count = kernels.load("reference").threshold_rows(
        np.ascontiguousarray(x_BD), keep, method, places, np.empty(x_BD.size, np.float32)
    )
    kept_DB = np.zeros((cols, rows), bool)
    kept_DB.reshape(-1)[places[:count]] = True
    kept_BD = kept_DB.T
    other_BD = matrix(seed + 1, rows, cols, 0.0, 5)
    for backend in ALL:
        bits, values = chosen(backend, x_BD, keep, method)
        assert bits.tobytes() == np.packbits(kept_BD, axis=1, bitorder="little").tobytes(), backend.name
        assert values.tobytes() == x_BD[kept_BD].tobytes(), backend.name
        assert backend.count_bits(bits, rows, cols) == count, backend.name
        taken = np.empty(count, np.float32)
        backend.take_bits(bits, x_BD, taken)
        assert taken.tobytes() == values.tobytes(), backend.name
        whole_BN = np.full((rows, cols + 4), 7, np.float32)
        backend.put_bits(bits, values, whole_BN[:, 2 : 2 + cols])
        assert whole_BN[:, 2 : 2 + cols].tobytes() == np.where(kept_BD, x_BD, np.float32(0)).tobytes(), (
            backend.name
        )
        assert (whole_BN[:, :2] == 7).all()
        assert (whole_BN[:, 2 + cols :] == 7).all()
        whole_BN[:, 2 : 2 + cols] = other_BD
        expected_BD = np.where(kept_BD, other_BD + x_BD, other_BD)
        backend.add_bits(bits, values, whole_BN[:, 2 : 2 + cols])
        np.testing.assert_array_equal(whole_BN[:, 2 : 2 + cols], expected_BD)
        assert (whole_BN[:, :2] == 7).all()
        assert (whole_BN[:, 2 + cols :] == 7).all()


@every_backend
def test_bits_past_the_last_column_are_refused(backend):
    bits = np.array([0b001, 0b100, 0b1000], np.uint8)
    with pytest.raises(FormatError, match="bits: set past the last column"):
        backend.count_bits(bits, 3, 3)
    with pytest.raises(FormatError, match="bits: set past the last column"):
        backend.put_bits(bits, np.ones(3, np.float32), np.empty((3, 3), np.float32))
    assert backend.count_bits(bits, 3, 4) == 3


@every_backend
def test_bad_arguments_are_refused(backend):
    x_BD, bits, values = np.ones((2, 9), np.float32), np.zeros(4, np.uint8), np.empty(18, np.float32)
    bits[0] = 1
    for keep, method, text in [
        (0.0, 0, "keep must be above 0"),
        (np.nan, 0, "keep must be above 0"),
        (0.5, 2, "method must be 0 or 1"),
    ]:
        with pytest.raises(ValueError, match=text):
            backend.choose_bits(x_BD, keep, method, bits, values)
    with pytest.raises(ValueError, match="values need room for every entry"):
        backend.choose_bits(x_BD, 0.5, 0, bits, values[:17])
    with pytest.raises(ValueError, match="rows of whole bytes"):
        backend.choose_bits(x_BD, 0.5, 0, bits[:3], values)
    with pytest.raises(ValueError, match="rows of whole bytes"):
        backend.count_bits(bits, 2, 8)
    for x in (x_BD[:, ::2], x_BD.T):
        room = np.zeros(len(x) * -(-x.shape[1] // 8), np.uint8)
        with pytest.raises(ValueError, match="expected"):
            backend.take_bits(room, x, values[:0])
    for call in (
        lambda some: backend.take_bits(bits, x_BD, some),
        lambda some: backend.put_bits(bits, some, x_BD),
        lambda some: backend.add_bits(bits, some, x_BD),
    ):
        call(np.ones(1, np.float32))
        for count in (0, 2):
            with pytest.raises(ValueError, match="expected one for each bit that is set"):
                call(values[:count])
