"""Predicted sizes of lists of ids against the codec itself."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from laconic.codecs import IdList
from laconic.cost.frequencies import Frequencies
from laconic.cost.id_bytes import sorted_ids_bytes, unsorted_ids_bytes
from laconic.cost.needed_rows import needed_G
from laconic.data.synthetic import zipf_rows
from tests.cases import each

TRIALS = 8


def size(ids: np.ndarray) -> int:
    return len(IdList().encode(torch.from_numpy(ids)))


@each("order", ["ranked", "mixed"])
@each("exponent", [0.0, 0.8, 1.05])
@each(
    ("rows", "lookups", "owners"), [(50, 2048, 2), (1000, 512, 4), (100_000, 2048, 8), (1_000_000, 4096, 2)]
)
def test_sorted_ids_take_what_is_expected(rows, lookups, owners, exponent, order):
    """Of all owners' lists together: within five percent, or two bytes a list."""
    rng = np.random.default_rng(0)
    frequencies = Frequencies.zipf(rows, exponent)
    place_R = rng.permutation(rows) if order == "mixed" else np.arange(rows)
    total = 0
    for _ in range(TRIALS):
        ids = place_R[zipf_rows(rng.random((1, lookups)), np.array([rows]), exponent)[0]]
        total += sum(size(np.unique(ids[ids % owners == owner] // owners)) for owner in range(owners))
    expected = sorted_ids_bytes(frequencies.count_G / owners, needed_G(frequencies, lookups), order)
    assert expected == pytest.approx(total / TRIALS / owners, rel=0.05, abs=2)


@each("exponent", [0.0, 1.05])
@each("rows", [40, 20_000])
def test_ids_in_the_order_of_samples_take_what_is_expected(rows, exponent):
    rng = np.random.default_rng(0)
    frequencies = Frequencies.zipf(rows, exponent)
    sizes = [size(zipf_rows(rng.random((1, 2048)), np.array([rows]), exponent)[0]) for _ in range(TRIALS)]
    expected = unsorted_ids_bytes(
        2048, frequencies.count_G.astype(float), frequencies.probability_G, "ranked"
    )
    assert expected == pytest.approx(np.mean(sizes), rel=0.05)


def test_lists_without_ids_take_nothing():
    nothing = np.zeros(0)
    assert sorted_ids_bytes(nothing, nothing, "ranked") == 0
    assert sorted_ids_bytes(np.array([5.0]), np.array([0.0]), "mixed") == 0
    assert unsorted_ids_bytes(0, np.array([5.0]), np.array([0.2]), "ranked") == 0


def test_all_rows_of_a_table_cost_a_bit_each_at_most():
    everything = sorted_ids_bytes(np.array([4000.0]), np.array([1.0]), "ranked")
    assert everything == pytest.approx(size(np.arange(4000)), abs=16)
