"""Parquet files: what columns may hold, what is refused, and two real sets."""

from __future__ import annotations

import math
import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from laconic.config import parse
from laconic.data import ParquetSettings, Synthetic, SyntheticSettings, open_source
from laconic.data.columns import CategoricalColumns, ColumnSettings, DenseColumns, RandomSplit, TimeSplit
from laconic.data.odd_counts import odd_line
from laconic.data.parquet import Parquet
from laconic.errors import ConfigError, FormatError
from tests.data.tables import COLUMNS, bags, table, write

ROOT = Path(__file__).parents[2]
REAL = Path(os.environ.get("LACONIC_TEST_DATA", ROOT.parent / "shared" / "data"))
ALL_EVAL = RandomSplit(fraction=1.0)


def open_table(tmp_path, columns, *, dense=(), categorical=("c",), split=ALL_EVAL, **kw):
    """A source of one file with a label for every row, all of them in "eval"."""
    rows = len(next(iter(columns.values())))
    columns = {"label": pa.array([0] * rows, pa.int8()), **columns}
    pq.write_table(pa.table(columns), tmp_path / "x.parquet", **kw)
    entries = [c if isinstance(c, CategoricalColumns) else CategoricalColumns(columns=c) for c in categorical]
    settings = ColumnSettings(label="label", dense=tuple(dense), categorical=tuple(entries), split=split)
    return Parquet([tmp_path / "x.parquet"], settings)


def ids_of(source):
    (batch,) = source.batches("eval", global_batch=1000, rank=0, ranks=1)
    return [tables[0] for _, _, tables in bags(batch)]


def test_null_negative_and_too_large_ids_go_to_the_last_row(tmp_path):
    values = {"c": pa.array([0, 4, None, -1, 5, 2**62, -(2**63)], pa.int64())}
    source = open_table(tmp_path, values, categorical=[CategoricalColumns(columns="c", rows=5)])
    assert source.schema.rows == (6,)
    assert ids_of(source) == [(0,), (4,), (5,), (5,), (5,), (5,), (5,)]


def test_unsigned_ids_beyond_the_signed_range_are_unknown_too(tmp_path):
    values = {"c": pa.array([1, 2**64 - 1, 2**63], pa.uint64())}
    source = open_table(tmp_path, values, categorical=[CategoricalColumns(columns="c", rows=5)])
    assert ids_of(source) == [(1,), (5,), (5,)]


@pytest.mark.parametrize("statistics", [True, False])
def test_the_largest_id_tells_the_rows_where_nobody_does(tmp_path, statistics):
    values = {"c": pa.array([3, None, 7, 0], pa.int32()), "b": pa.array([[1], None, [9, None], []])}
    source = open_table(tmp_path, values, categorical=["c", "b"], write_statistics=statistics)
    assert source.schema.rows == (9, 11)
    assert [feature.bag for feature in source.schema.categorical] == [False, True]


def test_a_null_bag_is_empty_and_a_null_in_a_bag_unknown(tmp_path):
    source = open_table(tmp_path, {"c": pa.array([[1, 2], None, [], [None, 3, -4]], pa.list_(pa.int16()))})
    assert ids_of(source) == [(1, 2), (), (), (4, 3, 4)]


def test_a_column_of_nulls_has_only_the_row_for_unknown_ids(tmp_path):
    source = open_table(tmp_path, {"c": pa.array([None, None], pa.int32())})
    assert source.schema.rows == (1,)
    assert ids_of(source) == [(0,), (0,)]


def test_text_is_looked_up_in_a_vocabulary(tmp_path):
    (tmp_path / "words.txt").write_text("b\na\n")
    entry = CategoricalColumns(columns="c", vocabulary=tmp_path / "words.txt")
    for values in (
        pa.array(["a", "b", None, "x", ""]),
        pa.array(["a", "b", None, "x", ""]).dictionary_encode(),
    ):
        assert ids_of(open_table(tmp_path, {"c": values}, categorical=[entry])) == [
            (1,),
            (0,),
            (2,),
            (2,),
            (2,),
        ]


def test_dense_values_are_transformed_and_missing_ones_are_zero(tmp_path):
    nan, inf = math.nan, math.inf
    values = {
        "c": pa.array([0] * 6),
        "x": pa.array([1.0, None, nan, inf, -3.0, 1e300]),
        "n": pa.array([0, None, 3, -5, 7, 7], pa.int32()),
        "z": pa.array([1.0, 3.0, None, nan, 1.0, 3.0]),
    }
    dense = [
        DenseColumns(columns="x"),
        DenseColumns(columns="n", transform="log1p"),
        DenseColumns(columns="z", transform="standardize"),
    ]
    source = open_table(tmp_path, values, dense=dense)
    (batch,) = source.batches("eval", global_batch=10, rank=0, ranks=1)
    logs = [float(np.float32(np.log1p(n))) for n in (0, 0, 3, 0, 7, 7)]
    assert batch.dense_BF[:, 0].tolist() == [1.0, 0.0, 0.0, 0.0, -3.0, 0.0]
    assert batch.dense_BF[:, 1].tolist() == logs
    assert batch.dense_BF[:, 2].tolist() == [-1.0, 1.0, 0.0, 0.0, -1.0, 1.0]


def test_odd_values_are_counted_once_however_often_they_are_read(tmp_path):
    values = {
        "c": pa.array([0, None, 2, 3, None, 5]),
        "x": pa.array([1.0, None, math.nan, math.inf, -3.0, 1e300]),
        "n": pa.array([0, None, 3, -5, 7, 7], pa.int32()),
    }
    dense = [DenseColumns(columns="x"), DenseColumns(columns="n", transform="log1p")]
    source = open_table(tmp_path, values, dense=dense, row_group_size=2)
    assert odd_line(source.odd_values()) is None
    for _ in range(2):
        list(source.batches("eval", global_batch=4, rank=0, ranks=1))
    assert odd_line(source.odd_values(), source.odd_values()) == (
        "data: values taken for 0, for unknown or for an empty bag: x: 1 null, 1 NaN, 2 infinite; "
        "n: 1 null, 1 negative; c: 2 null"
    )


def test_a_constant_column_standardises_to_zero(tmp_path):
    dense = [DenseColumns(columns="x", transform="log1p_standardize")]
    source = open_table(tmp_path, {"c": pa.array([0, 0]), "x": pa.array([5, 5])}, dense=dense)
    assert next(source.batches("eval", global_batch=2, rank=0, ranks=1)).dense_BF.tolist() == [[0.0], [0.0]]


def test_patterns_take_what_no_name_and_no_earlier_entry_took(tmp_path):
    values = {name: pa.array([0]) for name in ("c_b", "c_a", "c_special", "d_x")}
    entries = ["c_*", CategoricalColumns(columns="c_special", buckets=3)]
    source = open_table(tmp_path, values, categorical=entries, dense=[DenseColumns(columns="d_?")])
    assert [feature.name for feature in source.schema.categorical] == ["c_b", "c_a", "c_special"]
    assert source.schema.dense == ("d_x",)


def test_a_random_split_does_not_depend_on_files_and_row_groups(tmp_path):
    apart = Parquet([write(tmp_path / "a", files=3, row_group=50)], COLUMNS)
    whole = Parquet([write(tmp_path / "b", files=1, row_group=1000)], COLUMNS)
    sets = [
        sorted(sample for b in s.batches("eval", global_batch=99, rank=0, ranks=1) for sample in bags(b))
        for s in (apart, whole)
    ]
    assert sets[0] == sets[1]
    assert 0.2 < len(sets[0]) / 500 < 0.3


def test_a_split_by_time_evaluates_on_the_latest(tmp_path):
    folder = write(tmp_path / "a")
    for column in ("time", None):
        split = TimeSplit(kind="time", fraction=0.2, column=column)
        source = Parquet([folder], COLUMNS.model_copy(update={"split": split}))
        numbers = [
            int(sample[1][0])
            for b in source.batches("eval", global_batch=99, rank=0, ranks=1)
            for sample in bags(b)
        ]
        times = table(500)["time"].to_numpy() if column else np.arange(500)
        assert sorted(times[numbers]) == list(range(400, 500))


@pytest.mark.parametrize(("fraction", "expected"), [(0.0, 0), (0.2, 4), (1.0, 6)])
def test_rows_as_late_as_the_first_to_evaluate_on_are_not_trained_on(tmp_path, fraction, expected):
    values = {"c": pa.array([0] * 6), "t": pa.array([1, 2, 3, 3, 3, 3])}
    source = open_table(tmp_path, values, split=TimeSplit(kind="time", fraction=fraction, column="t"))
    assert (source.samples_in("eval"), source.samples_in("train")) == (expected, 6 - expected)


def test_any_number_of_streams_and_rows_to_hold_loses_no_sample(tmp_path):
    folder = write(tmp_path / "a", rows=200, row_group=7)
    for streams, held in ((1, 1), (64, 1), (64, 10), (5, 60), (64, 10_000), (1024, 10_000)):
        source = Parquet([folder], COLUMNS, streams=streams, held_rows=held)
        seen = [s for b in source.batches("train", global_batch=64, rank=0, ranks=1) for s in bags(b)]
        assert len(set(seen)) == len(seen) == source.samples_in("train")


def test_a_resume_reads_no_row_group_before_its_own(tmp_path, monkeypatch):
    source = Parquet([write(tmp_path / "a", row_group=50)], COLUMNS, streams=1)
    read: list[int] = []
    original = source._groups.read
    monkeypatch.setattr(source._groups, "read", lambda g, c: read.append(g) or original(g, c))
    next(source.batches("train", global_batch=4, rank=0, ranks=1, start=source.samples_in("train") - 4))
    assert len(read) == 1


@pytest.mark.parametrize(
    ("columns", "values", "message"),
    [
        ({}, {"c": pa.array(["a"])}, "categorical 'c' is text; give buckets or a vocabulary"),
        ({}, {"c": pa.array([0.5])}, "categorical 'c': expected integers or text, got double"),
        ({}, {"k": pa.array([1])}, "'c' matches no column that is left (columns: label, k)"),
        ({"label": "click"}, {"c": pa.array([1])}, "no column 'click' (known: label, c)"),
        ({"dense": [{"columns": "c"}]}, {"c": pa.array([1])}, "'c' is used twice (columns: label, c)"),
        (
            {"dense": [{"columns": "s"}]},
            {"c": pa.array([1]), "s": pa.array(["1"])},
            "dense 's': expected numbers, got string",
        ),
    ],
)
def test_columns_that_do_not_fit_are_refused(tmp_path, columns, values, message):
    path = tmp_path / "x.parquet"
    pq.write_table(pa.table({"label": pa.array([0]), **values}), path)
    settings = ColumnSettings.model_validate({"label": "label", "categorical": [{"columns": "c"}], **columns})
    with pytest.raises(ConfigError) as caught:
        Parquet([path], settings)
    assert str(caught.value) == f"{path}: {message}"


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([0, 2], "label 'label': expected 0 or 1, got 2.0"),
        ([1, None], "label 'label': expected 0 or 1, got 1 nulls"),
    ],
)
def test_labels_are_zero_or_one(tmp_path, labels, message):
    source = open_table(tmp_path, {"c": pa.array([0, 0]), "label": pa.array(labels, pa.int8())})
    with pytest.raises(FormatError) as caught:
        next(source.batches("eval", global_batch=2, rank=0, ranks=1))
    assert str(caught.value) == f"{tmp_path / 'x.parquet'}: row group 0: {message}"


def test_files_that_are_not_there_or_not_parquet_are_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"none: no such file$"):
        Parquet([tmp_path / "none"], COLUMNS)
    with pytest.raises(ConfigError, match=r"no \*\.parquet in this folder$"):
        Parquet([tmp_path], COLUMNS)
    (tmp_path / "x.parquet").write_bytes(b"PAR1 and then nothing of the kind")
    with pytest.raises(FormatError, match=r"x\.parquet: not a Parquet file: "):
        Parquet([tmp_path], COLUMNS)


def test_a_file_that_differs_from_the_first_is_refused(tmp_path):
    folder = write(tmp_path / "a")
    pq.write_table(table(5).drop_columns(["id"]), folder / "9.parquet")
    with pytest.raises(FormatError, match=r"9\.parquet: no column 'id' \(known: label, number"):
        Parquet([folder], COLUMNS)
    pq.write_table(table(5).cast(table(5).schema.set(3, pa.field("id", pa.int64()))), folder / "9.parquet")
    with pytest.raises(
        FormatError, match=r"9\.parquet: column 'id': expected int32 as in .*0\.parquet, got int64"
    ):
        Parquet([folder], COLUMNS)


def test_a_file_cut_short_after_opening_is_an_error_with_its_name(tmp_path):
    folder = write(tmp_path / "a", files=1)
    source = Parquet([folder], COLUMNS)
    path = folder / "0.parquet"
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(
        FormatError, match=r"0\.parquet: (row group \d+ cannot be read, column .*|not a Parquet file): "
    ):
        next(source.batches("train", global_batch=4, rank=0, ranks=1))


def test_one_way_to_ids_only():
    with pytest.raises(ConfigError) as caught:
        parse(
            "label = 'y'\n[[categorical]]\ncolumns = 'c'\nrows = 3\nbuckets = 4\n",
            ColumnSettings,
            where="s.toml",
        )
    assert (
        str(caught.value)
        == "s.toml: categorical.0: give one of rows, buckets and vocabulary, got rows and buckets"
    )


def test_settings_open_what_they_describe(tmp_path):
    source = open_source(SyntheticSettings(kind="synthetic", rows=(5, 6), samples=100))
    assert isinstance(source, Synthetic)
    assert (source.schema.rows, source.samples_in("train")) == ((5, 6), 100)
    folder = write(tmp_path / "a")
    with pytest.raises(ConfigError, match=r"schema\.toml: no such file$"):
        open_source(ParquetSettings(kind="parquet", path=folder))
    (folder / "schema.toml").write_text("label = 'label'\n[[categorical]]\ncolumns = 'id'\n")
    assert open_source(ParquetSettings(kind="parquet", path=folder)).schema.rows == (51,)


@pytest.mark.parametrize(
    ("name", "samples", "rows"),
    [("book_crossing", 1_149_780, 832_596), ("complete_journey", 1_469_307, 343_289)],
)
def test_the_examples_open_the_real_sets(name, samples, rows):
    path = REAL / f"{name}.parquet"
    if not path.exists():
        pytest.skip(f"no {path}; set LACONIC_TEST_DATA to the folder of the real sets")
    settings = ParquetSettings(kind="parquet", path=path, columns=ROOT / "examples" / f"{name}.toml")
    source = open_source(settings)
    assert source.samples_in("train") + source.samples_in("eval") == samples
    assert source.schema.total_rows == rows
    batch = next(source.batches("train", global_batch=1024, rank=0, ranks=1))
    ids_TB = batch.lookups.ids_L.view(source.schema.tables, -1)
    limit = np.array(source.schema.rows)
    assert (ids_TB.max(dim=1).values.numpy() < limit - 1).all()  # these sets have no unknown ids
    assert (ids_TB >= 0).all()
    assert np.isfinite(batch.dense_BF.numpy()).all()
