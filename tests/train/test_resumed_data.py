"""A run is resumed on the data that it was trained on: its place in an epoch means nothing in other data."""

from __future__ import annotations

import json

import pyarrow.parquet as pq
import pytest

from laconic.errors import FormatError
from laconic.train.checkpoint import newest_checkpoint
from laconic.train.run import run
from tests.data import tables
from tests.train.small_runs import settings_of

COLUMNS = """
label = "label"
[[dense]]
columns = "number"
[[categorical]]
columns = "id"
rows = 50
[split]
kind = "random"
fraction = 0.25
"""


@pytest.fixture
def parquet(tmp_path):
    """Return how to run two steps of a small run on files of a folder."""
    (tmp_path / "columns.toml").write_text(COLUMNS)

    def go(folder, *overrides, resume=False, steps=2):
        data = f'data={{kind="parquet", path="{folder}", columns="{tmp_path / "columns.toml"}"}}'
        rest = ("embeddings.replicate_below=0", f"train.out={tmp_path / 'run'}", f"train.steps={steps}")
        return run(settings_of(data, *rest, *overrides), resume=resume, console=None)

    return go


def test_the_same_files_in_another_place_are_the_same_data(tmp_path, parquet):
    folder = tables.write(tmp_path / "here", rows=300)
    parquet(folder)
    assert parquet(folder.rename(tmp_path / "there"), resume=True, steps=4).steps == 4


@pytest.mark.parametrize(
    ("rows", "seed", "message"),
    [
        (400, 0, r"it was trained on other data: training samples: \d+ there and \d+ here; resume it on the"),
        (300, 1, r"it was trained on other data: first ids: '\w+' there and '\w+' here"),
    ],
)
def test_other_files_are_refused_with_what_differs(tmp_path, parquet, rows, seed, message):
    parquet(tables.write(tmp_path / "here", rows=300, files=1))
    other = tmp_path / "other"
    other.mkdir()
    pq.write_table(tables.table(rows, seed), other / "0.parquet", row_group_size=60)
    with pytest.raises(FormatError, match=message):
        parquet(other, resume=True, steps=4)


def test_another_order_is_refused(tmp_path, parquet):
    folder = tables.write(tmp_path / "here", rows=300)
    parquet(folder)
    with pytest.raises(FormatError, match=r"data\.seed: 0 there and 7 here"):
        parquet(folder, "data.seed=7", resume=True, steps=4)


def test_a_checkpoint_of_before_there_were_streams_is_resumed_with_a_warning(tmp_path, parquet):
    folder = tables.write(tmp_path / "here", rows=300)
    assert parquet(folder).warnings == []
    manifest = newest_checkpoint(tmp_path / "run" / "checkpoints") / "manifest.json"
    written = json.loads(manifest.read_text())
    assert written["position"].pop("streams") == 64
    written["data"] = {name: of for name, of in written["data"].items() if name != "data.streams"}
    written["data"]["data.window_rows"] = 1 << 20
    manifest.write_text(json.dumps(written))
    (warning,) = parquet(folder, resume=True, steps=4).warnings
    assert "when epochs had another order" in warning


def test_generated_data_may_change_only_in_what_is_evaluated(tmp_path):
    def go(*overrides, **how):
        return run(
            settings_of("data.samples=80", f"train.out={tmp_path}", *overrides), console=None, **how
        ).steps

    go("train.steps=2", resume=False)
    assert go("train.steps=3", "data.eval_samples=20", resume=True) == 3
    with pytest.raises(FormatError, match=r"data\.zipf: 1\.05 there and 0\.5 here"):
        go("data.zipf=0.5", resume=True)


def test_a_checkpoint_that_does_not_know_its_data_is_resumed_as_before(tmp_path):
    run(settings_of("data.samples=80", f"train.out={tmp_path}", "train.steps=2"), resume=False, console=None)
    manifest = newest_checkpoint(tmp_path / "checkpoints") / "manifest.json"
    written = json.loads(manifest.read_text())
    del written["data"]
    manifest.write_text(json.dumps(written))
    settings = settings_of("data.samples=80", "data.zipf=0.5", f"train.out={tmp_path}", "train.steps=4")
    assert run(settings, resume=True, console=None).steps == 4
