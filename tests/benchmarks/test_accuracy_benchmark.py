"""Pairs of runs: what is written down, what is not run again, and what the tables show."""

from __future__ import annotations

import json
from io import StringIO

import numpy as np
import pytest
from rich.console import Console

pa = pytest.importorskip("pyarrow")
from pyarrow import parquet  # noqa: E402

from benchmarks.accuracy.benchmark import render, run_accuracy_benchmark  # noqa: E402
from laconic.errors import ConfigError  # noqa: E402

FIELDS = {
    *("data", "optimizer", "policy", "seed", "log_loss", "exact_log_loss", "null_log_loss"),
    *("progressive", "exact_progressive", "null_progressive", "auc", "exact_auc"),
    *("estimate_low", "estimate_high", "ratio_rows_ids", "ratio_gradients", "ratio_dense"),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Write 20 batches whose labels follow one of two columns of ids."""
    random, rows = np.random.default_rng(0), 24_000
    user, item = random.integers(0, 200, rows), random.integers(0, 40, rows)
    label = random.random(rows) < 1 / (1 + np.exp(-np.sin(user)))
    columns = {
        "label": label.astype(np.uint8),
        "c_user": user,
        "c_item": item,
        "d_count": random.integers(0, 9, rows).astype(np.int32),
    }
    found = tmp_path_factory.mktemp("sets")
    parquet.write_table(pa.table(columns), found / "tiny.parquet")
    return found


def run(folder, file, pairs, policies=("default", "auto", "tuned")):
    said = []
    rows = run_accuracy_benchmark(
        data=folder, pairs=pairs, policies=policies, file=file, say=said.append, processes=0
    )
    return rows, [line for line in said if "epochs" in line]


@pytest.fixture(scope="module")
def first(folder, tmp_path_factory):
    file = tmp_path_factory.mktemp("pairs") / "pairs.jsonl"
    return file, *run(folder, file, 1)


def test_a_pair_is_one_line_with_all_that_was_measured(first):
    file, rows, epochs = first
    assert [row["policy"] for row in rows] == ["default", "auto", "tuned"]
    assert len(epochs) == 5  # exact and null serve all three
    assert [json.loads(line) for line in file.read_text().splitlines()] == rows
    for row in rows:
        assert set(row) == FIELDS
        assert (row["data"], row["seed"]) == ("tiny", 0)
        assert row["estimate_low"] < row["estimate_high"]
        assert row["ratio_rows_ids"] > 1
        assert row["ratio_gradients"] > 1


def test_rounded_and_nudged_runs_differ_from_the_exact_one_by_little(first):
    _, rows, _ = first
    for row in rows:
        for name in ("log_loss", "progressive"):
            assert 0 < abs(row[name] / row[f"exact_{name}"] - 1) < 0.02
            # the first steps of Adagrad have one length: what nudges decides on signs
            assert 0 < abs(row[f"null_{name}"] / row[f"exact_{name}"] - 1) < 0.02


def test_what_the_file_has_is_not_run_again(first, folder, tmp_path):
    file, rows, _ = first
    again, epochs = run(folder, file, 1)
    assert (again, epochs) == (rows, [])
    some = tmp_path / "some.jsonl"
    some.write_text("".join(json.dumps(row) + "\n" for row in rows if row["policy"] != "auto"))
    found, epochs = run(folder, some, 1)
    assert len(epochs) == 1  # its exact run is in the other rows
    assert {row["policy"]: row for row in found} == {row["policy"]: row for row in rows}


def test_tables_show_means_with_intervals_and_the_null_pairs(first):
    _, rows, _ = first
    two = [{**row, "seed": seed} for seed in (0, 1) for row in rows]
    console = Console(width=160, record=True, file=StringIO())
    console.print(render(two))
    text = console.export_text()
    assert [line.split()[1] for line in text.splitlines() if "%" in line and "2" in line][:4] == [
        "null",
        "default",
        "auto",
        "tuned",
    ]
    assert "(0.000%)" in text  # two equal pairs


def test_bad_input_is_refused(folder, tmp_path):
    known = "default, auto, levels, large, tuned, bad"
    with pytest.raises(ConfigError, match=rf"^--policies: expected some of {known}, got 'atuo'$"):
        run(folder, None, 1, ("atuo",))
    other = tmp_path / "other.json"
    other.write_text('[{"a": 1}]')
    with pytest.raises(ConfigError, match=r"^--json: .*other\.json' has lines that are no pairs"):
        run(folder, other, 1)
