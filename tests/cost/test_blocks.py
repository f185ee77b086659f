"""Bytes of small blocks, and how many hold a row: formulas against encoded and drawn ones."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from laconic.codecs import BoundedRows
from laconic.cost.blocks import BLOCK_BYTES, blocks_bytes, filled_share
from laconic.cost.measure import measure_codec


def encoded_bytes(rows_RD, rows, bound):
    """Return the mean bytes of blocks of so many rows."""
    codec = BoundedRows(bound)
    blocks = rows_RD[: len(rows_RD) // rows * rows].split(rows)
    return sum(len(codec.encode(block)) for block in blocks) / len(blocks)


@pytest.mark.parametrize("rows", [1, 2, 4, 16, 64])
@pytest.mark.parametrize("bound", [0.02, 0.06, 0.2])
def test_small_blocks_take_what_the_formula_says(rows, bound):
    rows_RD = torch.from_numpy(np.random.default_rng(7).standard_normal((1024, 64)).astype(np.float32))
    figures = measure_codec(64, BoundedRows(bound))
    expected = blocks_bytes(rows * figures.row_bytes, 4.0 * 64 * rows, 1, figures.block_bytes)
    assert encoded_bytes(rows_RD, rows, bound) == pytest.approx(expected, rel=0.1)


def test_a_block_takes_no_more_than_its_values():
    rows_RD = torch.from_numpy(np.random.default_rng(7).standard_normal((64, 2)).astype(np.float32))
    assert blocks_bytes(1e9, 8.0, 1) == 9.0
    assert encoded_bytes(rows_RD, 1, 1e-30) <= 9.0
    assert blocks_bytes(2.0, 1e9, 1) == BLOCK_BYTES + 2.0


@pytest.mark.parametrize("owners", [2, 7, 64, 300])
def test_the_share_of_owners_that_have_a_needed_row(owners):
    """Rows are dealt in turn, and each is needed or not."""
    generator = np.random.default_rng(3)
    count_G, needed_G = np.array([3.0, 20.0, 400.0]), np.array([0.97, 0.3, 0.02])
    likely_R = np.repeat(needed_G, count_G.astype(int))
    filled = []
    for _ in range(400):
        needed_R = np.flatnonzero(generator.random(len(likely_R)) < likely_R)
        filled.append(len(np.unique(needed_R % owners)) / owners)
    assert filled_share(count_G, needed_G, owners) == pytest.approx(np.mean(filled), abs=0.02)


def test_a_table_without_rows_fills_no_block():
    assert filled_share(np.array([]), np.array([]), 4) == 0.0
