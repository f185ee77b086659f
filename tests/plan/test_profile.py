"""What one pass finds is what is there: exactly where it says so, within its bounds elsewhere."""

from __future__ import annotations

import os
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from laconic.data import ParquetSettings, Synthetic, SyntheticSettings, open_source
from laconic.errors import ConfigError, FormatError
from laconic.lookups import Lookups
from laconic.plan.access.profile import Profiler, capacities

ROOT = Path(__file__).parents[2]
REAL = Path(os.environ.get("LACONIC_TEST_DATA", ROOT.parent / "shared" / "data"))
SMALL = 1024  # the least that a table gets


def profiled(source, capacity=1 << 21):
    tables = [(feature.name, feature.rows) for feature in source.schema.categorical]
    profiler = Profiler(tables, source.samples_in("train"), source="test", capacity=capacity)
    for lookups in source.lookups_in_order("train"):
        profiler.add(lookups)
    return profiler.finish()


def one_table(ids, rows, cuts=(), capacity=SMALL):
    """Profile one table with an id for every sample, in blocks that end at ``cuts``."""
    profiler = Profiler([("t", rows)], len(ids), source="test", capacity=capacity)
    for block in np.split(ids, sorted(cuts)):
        profiler.add(Lookups.single(torch.from_numpy(block)[None]))
    return profiler.finish().table("t")


def zipf_ids(count, rows, exponent, seed):
    weight = np.arange(1.0, rows + 1) ** -exponent
    draw = np.random.default_rng(seed)
    names = draw.permutation(rows)
    return names[np.searchsorted(np.cumsum(weight) / weight.sum(), draw.random(count), side="right")]


def assert_consistent(table):
    assert int(table.counts_H.sum() + table.tail_lookups_R.sum()) == table.lookups
    assert table.ids_H.size + int(table.tail_rows_R.sum()) == table.distinct.rows
    assert table.distinct.lower <= table.distinct.rows <= table.distinct.upper <= table.rows
    assert (table.tail_rows_R >= 1).all()
    assert (table.tail_lookups_R >= table.tail_rows_R).all()
    assert (np.diff(table.counts_H) <= 0).all()
    assert np.unique(table.ids_H).size == table.ids_H.size
    count_G, probability_G = table.probabilities()
    assert (count_G >= 1).all()
    assert int(count_G.sum()) == table.rows
    assert (np.diff(probability_G) <= 0).all()
    assert count_G @ probability_G == pytest.approx(1.0 if table.lookups else 0.0, abs=1e-9)


def same(a, b):
    pairs = [(getattr(a, field.name), getattr(b, field.name)) for field in fields(a)]
    return all(np.array_equal(x, y) if isinstance(x, np.ndarray) else x == y for x, y in pairs)


@given(
    ids=st.lists(st.integers(0, 60), max_size=300),
    rows=st.integers(61, 80),
    cuts=st.lists(st.integers(0, 300), max_size=5),
)
def test_few_rows_are_counted_exactly_in_blocks_of_any_size(ids, rows, cuts):
    ids = np.array(ids, dtype=np.int64)
    table = one_table(ids, rows, [cut for cut in cuts if cut <= ids.size])
    counts = np.bincount(ids, minlength=rows)
    order = np.lexsort((np.arange(rows), -counts))[: (counts > 0).sum()]
    assert table.exact
    np.testing.assert_array_equal(table.ids_H, order)
    np.testing.assert_array_equal(table.counts_H, counts[order])
    assert table.distinct.lower == table.distinct.rows == table.distinct.upper == order.size
    assert table.lookups == ids.size
    assert_consistent(table)


@settings(max_examples=30)
@given(
    seed=st.integers(0, 1 << 30),
    exponent=st.floats(0, 2),
    rows=st.integers(1100, 40_000),
    count=st.integers(1, 60_000),
    fold=st.sampled_from([1, 7]),
)
def test_bounds_and_sums_hold_where_ids_are_more_than_fit(seed, exponent, rows, count, fold):
    ids = zipf_ids(count, rows, exponent, seed) // fold * fold
    table = one_table(ids, rows)
    truth = np.bincount(ids, minlength=rows)
    assert_consistent(table)
    assert table.distinct.lower <= (truth > 0).sum() <= table.distinct.upper
    counted = truth[table.ids_H]
    assert (table.counts_H <= counted).all()
    assert (counted <= table.counts_H + table.missed_H).all()
    assert (table.missed_H * 16 <= table.counts_H).all()


@settings(max_examples=15)
@given(cuts=st.lists(st.integers(0, 30_000), max_size=8))
def test_blocks_of_any_size_make_no_difference_to_estimates(cuts):
    ids = zipf_ids(30_000, 10_000, 0.8, 3)
    whole = one_table(ids, 10_000)
    assert not whole.exact
    assert same(whole, one_table(ids, 10_000, cuts))


def test_the_most_frequent_rows_are_in_the_head():
    ids = zipf_ids(400_000, 50_000, 1.05, 1)
    table = one_table(ids, 50_000, capacity=4096)
    truth = np.bincount(ids, minlength=50_000)
    assert not table.exact
    top = np.argsort(-truth, kind="stable")[:200]
    assert np.isin(top, table.ids_H).all()
    exact = table.missed_H == 0
    np.testing.assert_array_equal(table.counts_H[exact], truth[table.ids_H[exact]])
    assert exact[:100].all()


def test_a_row_that_turns_frequent_late_is_in_the_head_within_its_bound():
    draw = np.random.default_rng(0)
    ids = np.concatenate([draw.integers(0, 90_000, 100_000), np.full(50_000, 99_999)])
    table = one_table(ids, 100_000)
    assert table.ids_H[0] == 99_999
    assert 0 < table.missed_H[0] < 200
    assert table.counts_H[0] <= 50_000 <= table.counts_H[0] + table.missed_H[0]


@pytest.mark.parametrize("exponent", [0.0, 0.7, 1.05])
def test_the_tail_has_the_shape_of_what_it_stands_for(exponent):
    ids = zipf_ids(300_000, 60_000, exponent, 5)
    exact = one_table(ids, 60_000, capacity=60_000)
    table = one_table(ids, 60_000, capacity=4096)
    assert exact.exact
    assert not table.exact
    ranks = np.geomspace(1, 60_000, 50)
    # shares of a sample of n differ by 5 / sqrt(n) / 2 at most, as often as five standard errors do
    allowed = 2.5 * table.sampled**-0.5
    assert np.abs(table.share_of_top(ranks) - exact.share_of_top(ranks)).max() < allowed
    assert table.top_share == pytest.approx(exact.top_share, abs=allowed)


def test_bags_and_tables_that_nobody_looks_up():
    lengths = [0, 3, 1, 3]
    offsets = torch.tensor([0, *np.cumsum(lengths), *[7] * 4])
    profiler = Profiler([("bags", 10), ("nobody", 5)], 4, source="test")
    profiler.add(Lookups(torch.tensor([1, 2, 2, 9, 1, 1, 1]), offsets, 2))
    access = profiler.finish()
    bags, nobody = access.tables
    assert bags.bags == ((0, 1), (1, 1), (3, 2))
    assert bags.mean_bag == 7 / 4
    assert (bags.ids_H.tolist(), bags.counts_H.tolist()) == ([1, 2, 9], [4, 2, 1])
    assert (nobody.lookups, nobody.bags, nobody.zipf, nobody.drift) == (0, ((0, 4),), None, None)
    count_G, probability_G = nobody.probabilities()
    assert (count_G.tolist(), probability_G.tolist()) == ([5], [0.0])
    for table in access.tables:
        assert_consistent(table)


def test_no_samples_at_all():
    table = one_table(np.empty(0, dtype=np.int64), 7)
    assert (table.lookups, table.mean_bag, table.top_share, table.bags) == (0, 0.0, 0.0, ())
    assert_consistent(table)


def test_long_bags_share_entries():
    profiler = Profiler([("t", 5)], 2, source="test")
    profiler.add(Lookups(torch.zeros(2001, dtype=torch.int64), torch.tensor([0, 1000, 2001]), 1))
    table = profiler.finish().table("t")
    assert table.bags == ((992, 2),)
    assert table.mean_bag == 1000.5


@pytest.mark.parametrize("wrong", [-1, 10])
def test_an_id_outside_its_table_is_refused(wrong):
    with pytest.raises(FormatError, match=rf"^profile: table 't': expected ids in 0\.\.9, got {wrong}$"):
        one_table(np.array([3, wrong, 4]), 10)


@pytest.mark.parametrize("count", [3, 5])
def test_another_number_of_samples_than_announced_is_refused(count):
    profiler = Profiler([("t", 10)], 4, source="test")

    def all_samples():
        profiler.add(Lookups.single(torch.zeros(1, count, dtype=torch.int64)))
        profiler.finish()

    with pytest.raises(
        ConfigError, match=rf"^profile: expected 4 samples, got {count}; did the data change\?$"
    ):
        all_samples()


def test_an_unknown_table_is_an_error_that_names_those_there_are():
    access = profiled(Synthetic(SyntheticSettings(rows=[5, 6], samples=10)))
    with pytest.raises(ConfigError, match=r"^access: no table 'c7' \(known: c0, c1\)$"):
        access.table("c7")


def test_small_tables_leave_room_to_large_ones():
    assert capacities([10, 1_000_000, 30_000], 100_000) == [10, 69_990, 30_000]
    assert capacities([1 << 40] * 2, 100_000) == [50_000, 50_000]
    assert capacities([1 << 40] * 1000, 100_000) == [1024] * 1000


def test_memory_is_bounded_by_capacity_not_by_ids():
    profiler = Profiler([("t", 1 << 40)], 200_000, source="test", capacity=2000)
    draw = np.random.default_rng(0)
    for _ in range(20):
        profiler.add(Lookups.single(torch.from_numpy(draw.integers(0, 1 << 40, (1, 10_000)))))
        counter = profiler._counters[0]
        assert len(counter.sample) <= 2000
        assert counter.held is None or len(counter.held) <= 2000
    table = profiler.finish().table("t")
    assert table.distinct.lower <= 200_000 <= table.distinct.upper
    assert_consistent(table)


@pytest.mark.parametrize(
    ("name", "shares"),
    [
        ("book_crossing", {"c_user": 0.48, "c_isbn": 0.25, "c_author": 0.55, "c_publisher": 0.77}),
        ("complete_journey", {"c_product_id": 0.32, "c_manufacturer_id": 0.66, "c_department": 0.63}),
    ],
)
def test_the_skew_of_real_sets_is_what_is_known_of_them(name, shares, tmp_path):
    path = REAL / f"{name}.parquet"
    if not path.exists():
        pytest.skip(f"no {path}; set LACONIC_TEST_DATA to the folder of the real sets")
    columns = tmp_path / "columns.toml"
    columns.write_text('label = "label"\n' + "".join(f'[[categorical]]\ncolumns = "{c}"\n' for c in shares))
    source = open_source(ParquetSettings(kind="parquet", path=path, columns=columns))
    access = profiled(source)
    for table, share in shares.items():
        assert access.table(table).top_share == pytest.approx(share, abs=0.0051)  # known to two digits
    for table in access.tables:
        assert table.exact
        assert_consistent(table)
