"""Generated samples: the planted model, the skew of lookups, and what may not change."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from laconic.config import parse
from laconic.data import TERABYTE_ROWS, Synthetic, SyntheticSettings
from laconic.data.hashing import key64, mix64
from laconic.data.source import permute
from laconic.data.synthetic import zipf_rows
from laconic.errors import ConfigError
from tests.cases import each
from tests.data.tables import bags


def area_under_curve(label, score):
    rank = np.empty(score.size)
    rank[np.argsort(score, kind="stable")] = np.arange(1, score.size + 1)
    positive = label > 0
    n = int(positive.sum())
    return (rank[positive].sum() - n * (n + 1) / 2) / (n * (label.size - n))


def labels(source):
    (batch,) = source.batches("eval", global_batch=1 << 20, rank=0, ranks=1)
    return batch.label_B.numpy()


@each("seed", range(4))
@each(
    "shape",
    [
        {"rows": TERABYTE_ROWS, "cap": 1_000_000},
        {"rows": [1000] * 8},
        {"rows": [100, 5000, 30], "bags": [1, 5, 3]},
        {"rows": [100, 5000], "dense": 0},
    ],
)
def test_the_true_model_has_an_auc_near_080(shape, seed):
    source = Synthetic(SyntheticSettings(**shape, seed=seed, eval_samples=20_000))
    label = labels(source)
    assert 0.24 < label.mean() < 0.30
    assert 0.75 < area_under_curve(label, source.true_logits("eval", count=20_000)) < 0.85


def test_lookups_follow_zipf():
    source = Synthetic(SyntheticSettings(rows=[1_000_000], zipf=1.05, eval_samples=200_000))
    (batch,) = source.batches("eval", global_batch=1 << 20, rank=0, ranks=1)
    share = np.bincount(batch.lookups.ids_L.numpy(), minlength=1000)[:1000] / 200_000
    weight = np.arange(1, 1_000_001) ** -1.05
    exact = (weight / weight.sum())[:1000]
    assert share[0] == pytest.approx(exact[0], rel=0.15)  # 11 % by construction, the rest is chance
    assert share[:1000].sum() == pytest.approx(exact.sum(), rel=0.05)


@given(
    rows=st.integers(1, 1 << 40),
    exponent=st.sampled_from([0.0, 0.5, 1.0, 1.05, 2.0]),
    u=st.floats(0, 1, exclude_max=True),
)
def test_every_quantile_is_a_row(rows, exponent, u):
    (row,) = zipf_rows(np.array([[u, 0.0, 1 - 2**-53]]), np.array([rows]), exponent)
    assert 0 <= row[0] < rows
    assert row[1] == 0
    assert row[2] <= rows - 1


def test_exponent_zero_is_uniform():
    rows = zipf_rows((np.arange(1000)[None] + 0.5) / 1000, np.array([10]), 0.0)
    assert np.bincount(rows[0]).tolist() == [100] * 10


@given(n=st.integers(1, 5000), seed=st.integers(0, 100))
def test_a_permutation_hits_every_number_once(n, seed):
    assert np.array_equal(np.sort(permute(np.arange(n), n, key64(seed))), np.arange(n))


def test_short_permutations_are_all_reached():
    found = {tuple(permute(np.arange(4), 4, key64(seed)).tolist()) for seed in range(500)}
    assert len(found) == 24


def test_hashes_are_those_of_splitmix64():
    golden = 0x9E3779B97F4A7C15  # its first outputs for seed 0 are the mixed multiples of this
    words = np.array([golden, 2 * golden % 2**64, 3 * golden % 2**64], dtype=np.uint64)
    assert [hex(h) for h in mix64(words)] == ["0xe220a8397b1dcdaf", "0x6e789e6aa1b965f4", "0x6c45d188009454f"]


def test_the_first_sample_stays_what_it_is():
    """Seeds stand in papers and bug reports; numbers from the first version."""
    source = Synthetic(SyntheticSettings(rows=[1000, 20, 5], dense=2, seed=7, bags=[1, 3, 1]))
    batch = next(source.batches("eval", global_batch=4, rank=0, ranks=1))
    assert [(label, ids) for label, _, ids in bags(batch)] == [
        (1.0, ((29,), (0,), (0,))),
        (0.0, ((959,), (3, 0, 10), (1,))),
        (1.0, ((0,), (12, 0, 3), (0,))),
        (1.0, ((0,), (0,), (0,))),
    ]


def test_tables_are_cut_to_the_cap():
    assert max(Synthetic(SyntheticSettings(cap=500)).schema.rows) == 500
    assert Synthetic(SyntheticSettings(cap=None)).schema.rows == TERABYTE_ROWS
    assert len(TERABYTE_ROWS) == 26


@each(
    ("wrong", "message"),
    [
        ("bags = [1]", "data: expected 2 bag lengths, one for each table, got 1"),
        ("bags = [1, 0]", "data: bags.1: expected greater than or equal to 1, got 0"),
        ("cap = 0", "data: cap: expected a value >= 1, got 0"),
    ],
)
def test_wrong_shapes_are_refused(wrong, message):
    with pytest.raises(ConfigError) as caught:
        parse(f"rows = [3, 4]\n{wrong}", SyntheticSettings, where="data")
    assert str(caught.value) == message
