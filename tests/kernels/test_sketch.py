"""All kernels write the same sketches, read the same vectors and refuse the same blocks."""

from __future__ import annotations

import zlib
from types import SimpleNamespace

import numpy as np
import pytest

from laconic import kernels
from laconic.errors import FormatError
from laconic.kernels import load
from laconic.kernels.sketch_layout import SketchLayout
from tests.cases import each

REFERENCE = kernels.load("reference")
every_kernels = pytest.mark.parametrize("name", kernels.available())
OTHERS = [name for name in kernels.available() if name != "reference"]
every_type = pytest.mark.parametrize("cell_type", [np.int32, np.int64])

# entries, nonzeros, cells, Bloom: one and many segments, sizes around the 32 bits of a word and the chunks of a scan
SHAPES = [
    (1, 1, 1, False),
    (31, 4, 31, False),
    (33, 5, 20, False),
    (64, 3, 12, True),
    (1000, 100, 200, False),
    (1000, 20, 90, True),
    (8192, 900, 2400, False),
    (8193, 300, 600, True),
    (100_003, 20, 80, True),
    (70_000, 30_000, 40_000, False),
    (400_000, 200_000, 280_001, False),
    (400_000, 120_000, 290_000, True),
    (0, 0, 0, False),
]
every_shape = pytest.mark.parametrize(("size", "nonzeros", "cells", "bloom"), SHAPES)


def sparse(size, nonzeros, x_type=np.int32):
    rng = np.random.default_rng(size + nonzeros)
    limits = np.iinfo(x_type)
    x = np.zeros(size, x_type)
    places = rng.permutation(size)[:nonzeros]
    x[places] = rng.integers(limits.min, limits.max, nonzeros, x_type, endpoint=True)
    return x


def encode(name, layout, x, cell_type):
    cells, index = np.full(layout.cells, -5, cell_type), np.full(layout.words, 9, np.uint32)
    largest = kernels.load(name).encode_sketch(layout, x, cells, index)
    return cells, index, largest


def decode(name, layout, cells, index):
    """Return the vector, or the number of entries left, or the text of the refusal."""
    out = np.full(layout.size, -5, cells.dtype)
    try:
        left = kernels.load(name).decode_sketch(layout, cells, index, out)
    except FormatError as error:
        return str(error)
    return left or out


def assert_alike(layout, cells, index):
    """All kernels read the same vector, stall at the same entries, or refuse with the same words."""
    expected = decode("reference", layout, cells, index)
    assert [name for name in OTHERS if not same(decode(name, layout, cells, index), expected)] == []


def same(a, b):
    return (
        np.array_equal(a, b)
        if isinstance(a, np.ndarray) and isinstance(b, np.ndarray)
        else type(a) is type(b) and a == b
    )


@every_type
@each("x_type", [np.int32, np.int64])
@every_shape
def test_every_kernel_writes_the_same_sketch_and_reads_the_same_vector(
    cell_type, x_type, size, nonzeros, cells, bloom
):
    layout = SketchLayout.of(size, cells, 7, bloom)
    x = sparse(size, nonzeros, x_type)
    expected = encode("reference", layout, x, cell_type)
    assert expected[2] == (int(np.abs(x.astype(object)).max()) if size else 0)
    for name in kernels.available():
        actual = encode(name, layout, x, cell_type)
        assert np.array_equal(actual[0], expected[0]), name
        assert np.array_equal(actual[1], expected[1]), name
        assert actual[2] == expected[2], name
        decoded = decode(name, layout, *actual[:2])
        assert isinstance(decoded, np.ndarray), name
        assert np.array_equal(decoded, x.astype(cell_type)), name


@every_type
@each("bloom", [False, True])
def test_damaged_sketches_are_refused_alike(cell_type, bloom):
    layout = SketchLayout.of(500, 90, 3, bloom)
    cells, index, _ = encode("scalar", layout, sparse(500, 40), cell_type)
    rng = np.random.default_rng(1)
    for _ in range(150):
        bad_cells, bad_index = cells.copy(), index.copy()
        for _ in range(rng.integers(1, 4)):
            if rng.integers(2):
                bad_cells[rng.integers(len(cells))] ^= cell_type(1 << rng.integers(31))
            else:
                bad_index[rng.integers(len(index))] ^= np.uint32(1 << rng.integers(32))
        assert_alike(layout, bad_cells, bad_index)


@each("seed", range(30))
def test_stalls_leave_the_same_number_of_entries(seed):
    layout = SketchLayout.of(3000, 110, seed, False)
    assert_alike(layout, *encode("scalar", layout, sparse(3000, 80 + seed), np.int32)[:2])


@every_kernels
def test_the_format_does_not_change(name):
    """One number over cells and index of several layouts; a new one is a new version of docs/formats/sketch.md."""
    crc = 0
    for size, nonzeros, cells, bloom in SHAPES:
        layout = SketchLayout.of(size, cells, 11, bloom)
        x = np.zeros(size, np.int32)
        places = np.arange(nonzeros, dtype=np.int64) * 7919 % max(size, 1)
        x[places] = (np.arange(nonzeros) * 104729 + 1).astype(np.int32)
        for part in encode(name, layout, x, np.int32)[:2]:
            crc = zlib.crc32(part.tobytes(), crc)
    assert crc == 0x2320DA0C


@every_kernels
def test_arrays_that_do_not_fit_the_layout_are_refused(name):
    layout = SketchLayout.of(100, 30, 0, False)
    x, cells, index = np.zeros(100, np.int32), np.zeros(30, np.int32), np.zeros(4, np.uint32)
    implementation = kernels.load(name)
    for wrong in [(x[1:], cells, index), (x, cells[1:], index), (x, cells, index[1:])]:
        with pytest.raises(ValueError, match="does not have as many"):
            implementation.encode_sketch(layout, *wrong)
        with pytest.raises(ValueError, match="does not have as many"):
            implementation.decode_sketch(layout, wrong[1], wrong[2], wrong[0])
    with pytest.raises(TypeError):
        implementation.encode_sketch(layout, x.astype(np.float32), cells, index)


@each("name", OTHERS)
@each(("field", "value"), [(0, 10), (1, 20), (3, 9), (4, 30), (5, 5), (6, 17)])
def test_a_layout_that_contradicts_itself_is_refused(name, field, value):
    numbers = SketchLayout.of(100, 30, 0, False).numbers
    numbers[field] = value
    with pytest.raises(ValueError, match=r"layout|does not have as many"):
        load(name).decode_sketch(
            SimpleNamespace(numbers=numbers),
            np.zeros(30, np.int32),
            np.zeros(4, np.uint32),
            np.zeros(100, np.int32),
        )
