"""The SC'24 encoders: what they find, what they do not, and how Hybrid picks."""

from __future__ import annotations

import pytest
import torch

from laconic import BoundedRows, Huffman, Hybrid, VectorLz
from laconic.errors import ConfigError
from tests.cases import each

VECTOR_LZ, HUFFMAN = 5, 6


def test_vector_lz_matches_only_inside_its_window():
    torch.manual_seed(0)
    table = torch.randn(40, 16)
    x = torch.cat([table, table])
    near = VectorLz(0.02, window=40).encode(x).numel()
    far = VectorLz(0.02, window=39).encode(x).numel()
    assert near < 0.6 * far


def test_vector_lz_does_not_look_across_its_blocks_of_2048_rows():
    torch.manual_seed(0)
    row = torch.randn(1, 16).repeat(4096, 1)
    row[0, 0] += 1  # two distinct rows: not constant
    block = VectorLz(0.02).encode(row)
    literals = 3  # the odd row, the other one, and that one again in the second block
    matches = -(-2046 // 255) + -(-2047 // 255)
    assert block.numel() == 1 + 4 + 1 + literals * 17 + matches * 2 + 1


def test_huffman_spends_a_bit_per_value_where_row_duplicates_cost_nothing():
    x = torch.randn(2, 64)[torch.randint(0, 2, (1000,))]
    assert Huffman(0.02).encode(x).numel() > 1000 * 64 / 8
    assert BoundedRows(0.02).encode(x).numel() < 600


def test_hybrid_takes_the_smaller_block_where_codecs_cost_nothing():
    torch.manual_seed(0)
    for x in (torch.randn(1, 16).repeat(500, 1), torch.randn(500, 16) * 0.05):
        x[3, 3] += 1
        sizes = [codec(bound=0.02).encode(x).numel() for codec in (VectorLz, Huffman)]
        assert Hybrid(0.02, link_gbit_s=0).encode(x).numel() == min(sizes)


def test_hybrid_weighs_speed_by_bandwidth():
    torch.manual_seed(0)
    x = torch.randn(500, 16) * 0.05
    slow_huffman = {"huffman_gbyte_s": (0.1, 0.1), "lz_gbyte_s": (10.0, 10.0)}
    assert int(Hybrid(0.02, link_gbit_s=0.01, **slow_huffman).encode(x)[0]) == HUFFMAN
    assert int(Hybrid(0.02, link_gbit_s=100, **slow_huffman).encode(x)[0]) == VECTOR_LZ


@each("window", [0, 256, 1.5, True])
def test_a_window_outside_one_byte_is_refused(window):
    with pytest.raises(ConfigError, match=r"vector_lz\.window: expected 1\.\.255 rows"):
        VectorLz(window=window)


def test_speeds_that_are_not_positive_are_refused():
    with pytest.raises(ConfigError, match=r"hybrid\.lz_gbyte_s: expected two positive speeds"):
        Hybrid(lz_gbyte_s=(0.0, 1.0))


def test_the_paper_ratios_are_met_on_its_own_data(dump):
    """Hybrid in the paper: 17-18x on tb_table1 (here the book is part of the block), 485x on tb_table5."""
    for name, bound, low, high in (
        ("tb_table1_2048x64", 0.03, 15, 20),
        ("tb_table5_2048x64", 0.05, 350, 700),
    ):
        x = dump(name)
        ratio = x.numel() * 4 / Hybrid(bound, relative_to="range").encode(x).numel()
        assert low < ratio < high
