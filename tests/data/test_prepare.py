"""Preparing: counted or hashed, whole or not at all, and read back."""

from __future__ import annotations

import errno
import json
import math
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import typer
from typer.testing import CliRunner

from laconic.cli.prepare import prepare as command
from laconic.data import ParquetSettings, open_source
from laconic.data.columns import TimeSplit
from laconic.data.odd_counts import OddCounts
from laconic.data.prepare import RawLogs, prepare
from laconic.data.vocabulary import Hashed
from laconic.errors import ConfigError, FormatError
from tests.data.tables import bags, table
from tests.data.tables import write as write_parquet
from tests.data.test_criteo import line, write

COLUMNS = """
label = "label"
[[dense]]
columns = "number"
[[dense]]
columns = "count"
transform = "log1p_standardize"
[[categorical]]
columns = "words"
[[categorical]]
columns = "site"
[[categorical]]
columns = "id"
rows = 40
[split]
kind = "time"
column = "time"
fraction = 0.2
"""


@pytest.fixture
def logs(tmp_path):
    """Category c1: 1 five times, 2 three times, 3 twice, 4 once, one missing."""
    first = [1, 2, 1, 3, 1, "", 2, 4, 1, 3, 1, 2]
    lines = [line(n % 2, [n, -1, None, *range(10)], [c, *range(25)]) for n, c in enumerate(first)]
    return [write(tmp_path / "day_0", "".join(lines[:7])), write(tmp_path / "day_1.gz", "".join(lines[7:]))]


def read_all(folder):
    """Everything in a folder, train and eval, in the order of its first dense feature."""
    source = open_source(ParquetSettings(kind="parquet", path=folder))
    samples = [
        sample
        for split in ("train", "eval")
        for batch in source.batches(split, global_batch=7, rank=0, ranks=1)
        for sample in bags(batch)
    ]
    return source, sorted(samples, key=lambda sample: sample[1][0])


def left_over(folder):
    return [path.name for path in folder.iterdir() if "partial" in path.name]


@pytest.mark.parametrize(
    ("min_count", "ids", "known"),
    [
        (1, [0, 1, 0, 2, 0, 4, 1, 3, 0, 2, 0, 1], 4),
        (2, [0, 1, 0, 2, 0, 3, 1, 3, 0, 2, 0, 1], 3),
        (3, [0, 1, 0, 2, 0, 2, 1, 2, 0, 2, 0, 1], 2),
        (6, [0] * 12, 0),
    ],
)
def test_vocabularies_honor_the_threshold_and_rank_by_frequency(tmp_path, logs, min_count, ids, known):
    done = prepare(RawLogs(logs), tmp_path / "out", min_count=min_count)
    source, samples = read_all(tmp_path / "out")
    assert [tables[0][0] for _, _, tables in samples] == ids
    assert source.schema == done.schema
    assert source.schema.rows[0] == known + 1
    assert done.rows == len(samples) == 12
    assert done.unknown[0] == sum(number == known for number in ids)
    kept = pq.read_table(tmp_path / "out" / "vocabulary" / "c1.parquet").to_pydict()
    assert kept == {"value": [1, 2, 3, 4][:known], "count": [5, 3, 2, 1][:known]}


def test_labels_and_dense_features_arrive(tmp_path, logs):
    prepare(RawLogs(logs), tmp_path / "out")
    _, samples = read_all(tmp_path / "out")
    assert [label for label, _, _ in samples] == [0.0, 1.0] * 6
    expected = np.log1p(np.array([3, 0, 0, *range(10)], dtype=np.float64)).astype(np.float32)
    assert samples[3][1] == tuple(expected.tolist())


def test_hashing_needs_no_counting(tmp_path, logs):
    phases = []
    done = prepare(
        RawLogs(logs), tmp_path / "out", buckets=10, progress=lambda phase, *_: phases.append(phase)
    )
    _, samples = read_all(tmp_path / "out")
    assert set(phases) == {"write"}
    assert not (tmp_path / "out" / "vocabulary").exists()
    expected = Hashed(10)(pa.array([1, 2, 1, 3, 1, None, 2, 4, 1, 3, 1, 2])).tolist()
    assert [tables[0][0] for _, _, tables in samples] == expected
    assert done.unknown[0] == 1


def test_progress_ends_at_its_total(tmp_path, logs):
    seen = []
    prepare(RawLogs(logs), tmp_path / "out", progress=lambda *step: seen.append(step))
    total = sum(path.stat().st_size for path in logs)
    assert {phase: done for phase, done, _ in seen} == {"count": total, "write": total}
    assert {of for _, _, of in seen} == {total}


def test_row_groups_are_of_one_size_whatever_the_blocks(tmp_path, monkeypatch, logs):
    monkeypatch.setattr("laconic.data.prepared.ROW_GROUP", 5)
    monkeypatch.setattr("laconic.data.prepared._GROUPS_OF_A_PART", 2)
    prepare(RawLogs(logs), tmp_path / "out")
    found = [pq.ParquetFile(path).metadata for path in sorted((tmp_path / "out").glob("*.parquet"))]
    assert [[m.row_group(g).num_rows for g in range(m.num_row_groups)] for m in found] == [[5, 5], [2]]
    assert len(read_all(tmp_path / "out")[1]) == 12


def test_parquet_with_bags_text_and_time_is_prepared_too(tmp_path):
    (tmp_path / "columns.toml").write_text(COLUMNS)
    folder = write_parquet(tmp_path / "raw")
    done = prepare(RawLogs([folder], "parquet", tmp_path / "columns.toml"), tmp_path / "out", min_count=2)
    raw = table(500)
    source, samples = read_all(tmp_path / "out")
    words = pq.read_table(tmp_path / "out" / "vocabulary" / "words.parquet")["value"].to_pylist()
    sites = pq.read_table(tmp_path / "out" / "vocabulary" / "site.parquet")["value"].to_pylist()
    expected = [
        (
            tuple(words.index(word) if word in words else len(words) for word in row["words"]),
            (sites.index(row["site"]) if row["site"] in sites else len(sites),),
            (min(row["id"], 40),),
        )
        for row in raw.to_pylist()
    ]
    assert [tables for _, _, tables in samples] == expected
    assert [int(dense[0]) for _, dense, _ in samples] == list(range(500))
    assert np.mean([dense[1] for _, dense, _ in samples]) == pytest.approx(0, abs=1e-6)
    assert done.schema == source.schema
    assert source.samples_in("eval") == 100


def test_a_split_may_be_chosen_while_preparing(tmp_path, logs):
    prepare(RawLogs(logs), tmp_path / "out", split=TimeSplit(kind="time", fraction=0.25))
    source = open_source(ParquetSettings(kind="parquet", path=tmp_path / "out"))
    (batch,) = source.batches("eval", global_batch=9, rank=0, ranks=1)
    assert np.expm1(batch.dense_BF[:, 0].numpy()).round().tolist() == [9.0, 10.0, 11.0]


def test_an_existing_folder_is_never_touched(tmp_path, logs):
    (tmp_path / "out").mkdir()
    with pytest.raises(ConfigError, match=r"out: exists already; remove it or choose another folder$"):
        prepare(RawLogs(logs), tmp_path / "out")
    with pytest.raises(ConfigError, match=r"out: no folder '.*none' to write into; make it first$"):
        prepare(RawLogs(logs), tmp_path / "none" / "out")


def test_bad_input_leaves_nothing_behind(tmp_path, logs):
    bad = write(tmp_path / "bad", line() * 3 + "1\t2\n")
    with pytest.raises(FormatError, match=r"bad: line 4: expected 40 fields, got 2"):
        prepare(RawLogs([*logs, bad]), tmp_path / "out")
    assert not (tmp_path / "out").exists()
    assert left_over(tmp_path) == []
    done = prepare(RawLogs([*logs, bad], skip_bad_lines=True), tmp_path / "out")
    assert (done.rows, done.skipped) == (15, 1)


def test_a_full_disk_is_a_clear_error_and_leaves_nothing_behind(tmp_path, logs, monkeypatch):
    def full(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(pq.ParquetWriter, "write_table", full)
    with pytest.raises(
        OSError, match="no room left on the disk; nothing was kept; free some or choose"
    ) as caught:
        prepare(RawLogs(logs), tmp_path / "out")
    assert (caught.value.errno, caught.value.filename) == (errno.ENOSPC, str(tmp_path / "out"))
    assert not (tmp_path / "out").exists()
    assert left_over(tmp_path) == []


ODD = {
    "label": pa.array([0, 1, 0, 1, 0, 1], pa.uint8()),
    "number": pa.array([1.0, None, math.nan, -math.inf, 1e300, -2.0]),
    "count": pa.array([-3.0, None, None, math.nan, -math.inf, 7.0]),
    "words": pa.array([[1], None, [None, 1], [], [2], [2]]),
    "site": pa.array(["a", None, "b", "a", "b", None]),
    "id": pa.array([0, 1, 2, 3, 4, 5], pa.int32()),
    "time": pa.array(range(6)),
}
COUNTED = (
    OddCounts("number", null=1, nan=1, infinite=2, negative=0),
    OddCounts("count", null=2, nan=1, infinite=0, negative=2),
    OddCounts("words", null=2, nan=0, infinite=0, negative=0),
    OddCounts("site", null=2, nan=0, infinite=0, negative=0),
)


def test_odd_values_are_counted_shown_and_written_down(tmp_path):
    (tmp_path / "columns.toml").write_text(COLUMNS)
    pq.write_table(pa.table(ODD), tmp_path / "odd.parquet", row_group_size=2)
    logs = RawLogs([tmp_path / "odd.parquet"], "parquet", tmp_path / "columns.toml")
    done = prepare(logs, tmp_path / "out")
    assert done.odd == COUNTED
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert summary["odd_values"] == [asdict(column) for column in COUNTED]
    source = open_source(ParquetSettings(kind="parquet", path=tmp_path / "out"))
    list(source.batches("train", global_batch=9, rank=0, ranks=1))
    assert source.odd_values() == {}  # what was odd was counted, and is not any more
    shown = run(
        tmp_path / "odd.parquet", "--out", tmp_path / "shown", "--format", "parquet", "--columns", tmp_path / "columns.toml"
    )  # fmt: skip
    assert "taken for 0 (numbers), for unknown (values) or for an empty bag" in " ".join(shown.split())
    (row,) = (row for row in shown.splitlines() if row.startswith("│ count"))
    assert [word for word in row.split() if word.isdigit()] == ["2", "1", "2"]


def test_what_is_prepared_twice_does_not_pass_for_raw(tmp_path, logs):
    prepare(RawLogs(logs), tmp_path / "once")
    schema = tmp_path / "once" / "schema.toml"
    prepare(RawLogs([tmp_path / "once"], "parquet", schema), tmp_path / "twice")
    for name, known in (("once", True), ("twice", False)):
        raw = open_source(ParquetSettings(kind="parquet", path=tmp_path / name)).raw_values()
        assert (raw.dense is not None, "c1" in raw.categories) == (known, known)
    assert read_all(tmp_path / "once")[1] == read_all(tmp_path / "twice")[1]


def test_criteo_counts_empty_fields_and_negative_numbers(tmp_path, logs):
    found = {column.name: column for column in prepare(RawLogs(logs), tmp_path / "out").odd}
    assert found["i2"] == OddCounts("i2", null=0, nan=0, infinite=0, negative=12)
    assert found["i3"] == OddCounts("i3", null=12, nan=0, infinite=0, negative=0)
    assert found["c1"] == OddCounts("c1", null=1, nan=0, infinite=0, negative=0)


def test_an_input_without_samples_is_refused_and_leaves_nothing_behind(tmp_path):
    (tmp_path / "columns.toml").write_text(COLUMNS)
    pq.write_table(pa.table(ODD).slice(0, 0), tmp_path / "none.parquet")
    empty, bad = write(tmp_path / "empty", ""), write(tmp_path / "bad", "1\t2\n")
    cases = [
        (RawLogs([empty]), None, f"'{empty}'"),
        (RawLogs([empty, empty]), 3, f"'{empty}' and 1 more"),
        (RawLogs([bad], skip_bad_lines=True), None, f"'{bad}', 1 bad lines left out"),
        (
            RawLogs([tmp_path / "none.parquet"], "parquet", tmp_path / "columns.toml"),
            None,
            f"'{tmp_path / 'none.parquet'}'",
        ),
    ]
    for logs, buckets, named in cases:
        with pytest.raises(ConfigError) as caught:
            prepare(logs, tmp_path / "out", buckets=buckets)
        assert str(caught.value) == f"prepare: expected samples, got none in {named}; check the input"
        assert left_over(tmp_path) == []


def test_a_damaged_page_of_a_prepared_folder_is_refused(tmp_path, logs):
    """Without checksums, values would change and nobody would know."""
    prepare(RawLogs(logs), tmp_path / "out", min_count=2)
    settings = ParquetSettings(kind="parquet", path=tmp_path / "out")
    reads = {
        "part-00000.parquet": read_all,
        "vocabulary/c1.parquet": lambda _: open_source(settings).raw_values(),
    }
    for name, read in reads.items():
        path = tmp_path / "out" / name
        good = path.read_bytes()
        chunk = pq.ParquetFile(path).metadata.row_group(0).column(0)
        last = chunk.dictionary_page_offset + chunk.total_compressed_size - 1  # of the values themselves
        path.write_bytes(good[:last] + bytes([good[last] ^ 1]) + good[last + 1 :])
        with pytest.raises(FormatError, match=rf"{path.name}: .* cannot be read.*: .*CRC checksum"):
            read(tmp_path / "out")
        path.write_bytes(good)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"min_count": 2, "buckets": 3}, "prepare: give min_count or buckets, got both (2 and 3)"),
        ({"min_count": 0}, "prepare: min_count must be at least 1, got 0"),
        ({"paths": []}, "prepare: expected at least one input, got none"),
        ({"form": "csv"}, "prepare: no format 'csv' (known: criteo, parquet)"),
        ({"form": "parquet"}, "prepare: Parquet needs a description of its columns (a TOML file), got none"),
        ({"columns": "x.toml"}, "prepare: Criteo's columns are known; got a description 'x.toml'"),
    ],
)
def test_what_cannot_be_is_refused_at_once(tmp_path, logs, wrong, message):
    counting = {name: value for name, value in wrong.items() if name in ("min_count", "buckets")}
    asked = RawLogs(**{"paths": logs, **{k: v for k, v in wrong.items() if k not in counting}})
    with pytest.raises(ConfigError) as caught:
        prepare(asked, tmp_path / "out", **counting)
    assert str(caught.value) == message


def run(*arguments):
    app = typer.Typer()
    app.command()(command)
    result = CliRunner().invoke(app, [str(argument) for argument in arguments], catch_exceptions=False)
    assert result.exit_code == 0
    return result.stdout


def test_the_command_shows_a_table_or_json(tmp_path, logs):
    shown = run(*logs, "--out", tmp_path / "a", "--min-count", 2)
    assert "12 samples, 0 bad lines left out" in " ".join(shown.split())
    facts = json.loads(run(*logs, "--out", tmp_path / "b", "--min-count", 2, "--eval-last", "--json", "-"))
    assert facts["samples"] == 12
    assert facts["tables"][0] == {"name": "c1", "rows": 4, "bag": False, "unknown": 2}
    assert 'kind = "time"' in Path(tmp_path / "b" / "schema.toml").read_text()
