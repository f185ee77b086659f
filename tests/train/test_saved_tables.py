"""Rows of checkpoints, read where they are in the files."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from laconic.errors import ConfigError, FormatError
from laconic.train import saved_tables
from laconic.train.checkpoint_files import VERSION, SavedFiles, write_file
from laconic.train.saved_tables import SavedTable, saved_parts

ROWS, DIM = 1003, 5


@pytest.fixture(autouse=True)
def small_windows(monkeypatch):
    """Windows of ten rows."""
    monkeypatch.setattr(saved_tables, "_WINDOW_BYTES", 10 * 4 * DIM + 3)


def checkpoint(folder, shards):
    files = {}
    for rank, shard in enumerate(shards):
        name = f"tables-{rank}-of-{len(shards)}.pt"
        files[name] = write_file(folder / name, shard)
    manifest = {"version": VERSION, "ranks": len(shards), "position": {}, "kind": {}, "files": files}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return SavedFiles(folder)


def saved(folder, rows_RD, ranks):
    """A table on some ranks, between others, each with a state."""
    shards = []
    for rank in range(ranks):
        weight = rows_RD[rank::ranks].clone()
        others = {"first": 0, "stride": 1, "weight": torch.randn(3, 2)}
        empty = {"first": 0, "stride": 1, "weight": torch.empty(0, 4)}
        shards.append(
            {
                "before": others,
                "empty": empty,
                "t": {"first": rank, "stride": ranks, "weight": weight, "state": torch.randn(len(weight))},
                "same": others,
            }
        )
    parts = saved_parts(checkpoint(folder, shards))["t"]
    return SavedTable("t", ROWS, DIM, tuple(parts))


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_rows_are_those_that_were_saved(tmp_path, ranks):
    rows_RD = torch.randn(ROWS, DIM)
    table = saved(tmp_path, rows_RD, ranks)
    assert (len(table), table.shape, table.dtype) == (ROWS, rows_RD.shape, torch.float32)
    for rows in (
        slice(None),
        slice(0, 1),
        slice(17, 18),
        slice(5, 900),
        slice(990, 2000),
        slice(8, 8),
        slice(3, 99, 7),
    ):
        assert torch.equal(table[rows], rows_RD[rows])
    draw = np.random.default_rng(0)
    for ids in ([], [ROWS - 1], draw.integers(0, ROWS, 300), [5, 5, 4, 4, 999, 0]):
        ids_L = torch.tensor(ids, dtype=torch.int64)
        assert torch.equal(table[ids_L], rows_RD[ids_L])


@pytest.mark.parametrize("wrong", [-1, ROWS])
def test_an_id_beyond_the_table_is_named(tmp_path, wrong):
    table = saved(tmp_path, torch.randn(ROWS, DIM), 2)
    with pytest.raises(ConfigError, match=f"table 't' has rows 0 to {ROWS - 1}, got id {wrong}$"):
        table[torch.tensor([3, wrong])]


def test_a_run_may_remove_the_checkpoint_meanwhile(tmp_path):
    rows_RD = torch.randn(ROWS, DIM)
    table = saved(tmp_path, rows_RD, 1)
    (tmp_path / "tables-0-of-1.pt").unlink()
    assert torch.equal(table[:], rows_RD)


@pytest.mark.parametrize(
    "weight", [torch.randn(4, 3, dtype=torch.float64), torch.randn(4), torch.randn(3, 4).T]
)
def test_what_laconic_train_does_not_write_is_refused(tmp_path, weight):
    files = checkpoint(tmp_path, [{"t": {"first": 0, "stride": 1, "weight": weight}}])
    with pytest.raises(FormatError, match="table 't': expected a matrix of float32, row by row, got"):
        saved_parts(files)


def test_a_damaged_file_is_refused_before_its_rows_are_read(tmp_path):
    files = checkpoint(tmp_path, [{"t": {"first": 0, "stride": 1, "weight": torch.randn(4, 3)}}])
    path = tmp_path / "tables-0-of-1.pt"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(FormatError, match="its checksum does not match the manifest"):
        saved_parts(files)
