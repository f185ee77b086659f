"""Sketches by hand, each with one lie; layouts are those of ``docs/formats/sketch.md``."""

from __future__ import annotations

import struct

import numpy as np
import pytest
import torch

from laconic import Sketch, kernels
from laconic.errors import FormatError, HeadroomError, PeelingError
from tests.cases import each
from tests.hostile.decoding import as_tensor

WORKED = "FEFFFFFF 07000000 05000000 05000000 05000000 00000000 00000000 03000000 07000000 01000000 08000200 02000000"
SKETCH = Sketch(40, cells=9, seed=1)
DIRECT = Sketch(40, cells=40)
REACH, INDEX = 9, 10  # words of the block


@pytest.fixture(params=kernels.available(), autouse=True)
def backend(request, monkeypatch):
    monkeypatch.setenv(kernels.ENVIRONMENT, request.param)
    kernels.active.cache_clear()
    yield
    kernels.active.cache_clear()


def worked(**words: int) -> torch.Tensor:
    """Return the worked example with some of its 32-bit words replaced, by number: ``w9=7``."""
    values = list(struct.unpack("<12I", bytes.fromhex(WORKED)))
    for name, value in words.items():
        values[int(name[1:])] = value % 2**32
    return as_tensor(struct.pack("<12I", *values))


def test_the_worked_example_of_the_document_is_what_is_written():
    x = torch.zeros(40, dtype=torch.int32)
    x[3], x[17], x[33] = 5, -2, 7
    assert SKETCH.encode(x).numpy().tobytes() == bytes.fromhex(WORKED)
    assert torch.equal(SKETCH.decode(worked(), (40,)), x)


LIES = {
    "a cell one too high": ({"w2": 6}, FormatError, "cells: no entries of the index add up to them"),
    "a cell of no entry": ({"w5": 1}, FormatError, "cells: no entries of the index add up to them"),
    "an entry that the index does not know": ({"w11": 0}, FormatError, "cells: no entries of the index"),
    "a bit beyond the last entry": ({"w11": 0x102}, FormatError, "index: bits beyond the last entry are set"),
    "negative reach": ({"w9": -1}, FormatError, "reach: expected 0 or more, got -1"),
    "reach of a sum that may have wrapped": ({"w9": 0x8000}, HeadroomError, "may reach 2147483648"),
    "highest reach": ({"w9": 0x7FFFFFFF}, HeadroomError, "may reach"),
    "more entries than cells": ({"w10": 0x3FF}, PeelingError, "stalled with 11 entries left in 9 cells"),
    "every entry": ({"w10": -1, "w11": 0xFF}, PeelingError, "stalled with 40 entries left in 9 cells"),
}


@each("lie", LIES)
def test_a_sketch_that_lies_is_refused(lie):
    words, error, message = LIES[lie]
    with pytest.raises(error, match=message):
        SKETCH.decode(worked(**words), (40,))


def test_an_index_that_knows_too_much_is_harmless_as_long_as_it_peels():
    block = worked(w10=0x20008 | 1 << 30)
    assert torch.equal(SKETCH.decode(block, (40,)), SKETCH.decode(worked(), (40,)))


@each("dtype", ["int32", "int64"])
def test_without_hashes_a_cell_needs_its_bit(dtype):
    sketch = Sketch(40, cells=40, dtype=dtype)
    block = sketch.encode(torch.arange(40))
    cells, index = sketch.cells_and_index(block)
    index[0] &= ~np.uint32(1 << 7)
    with pytest.raises(FormatError, match="cells: no entries of the index add up to them"):
        sketch.decode(block, (40,))
    cells[7] = 0
    assert sketch.decode(block, (40,))[7] == 0
    index[1] |= np.uint32(1 << 8)
    with pytest.raises(FormatError, match="index: bits beyond the last entry are set"):
        sketch.decode(block, (40,))


def test_a_filter_that_knows_everything_stalls_and_allocates_nothing():
    sketch = Sketch(5000, cells=30, index="bloom")
    block = torch.full((sketch.nbytes,), 255, dtype=torch.uint8)
    sketch.cells_and_index(block)[0][-1] = 1
    with pytest.raises(PeelingError, match="stalled with 5000 entries left in 30 cells"):
        sketch.decode(block, (5000,))


def test_cells_behind_the_last_segment_must_be_zero():
    sketch = Sketch(40, cells=11, seed=1)
    block = sketch.encode(torch.zeros(40, dtype=torch.int32))
    sketch.cells_and_index(block)[0][10] = 1
    with pytest.raises(FormatError, match="cells: no entries of the index add up to them"):
        sketch.decode(block, (40,))


def test_no_bytes_are_no_sketch():
    with pytest.raises(FormatError, match="block: expected 48 bytes, got 0"):
        SKETCH.decode(as_tensor(b""), (40,))
    with pytest.raises(FormatError, match="block: expected 172 bytes, got 168"):
        DIRECT.decode(torch.zeros(168, dtype=torch.uint8), (40,))
