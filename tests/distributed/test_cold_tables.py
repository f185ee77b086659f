"""Tables in memory-mapped files train as tables in memory do, and leave nothing behind."""

from __future__ import annotations

import os
import resource
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from laconic.errors import ConfigError, PlanError
from laconic.exchange import SGD, Layout, RowwiseAdagrad, Table
from laconic.exchange.ranks.world import one_rank
from laconic.exchange.tables.memory import ALIGNMENT, allocate_rows
from laconic.lookups import Lookups
from tests.distributed import many_ranks
from tests.distributed.made import made
from tests.distributed.ranks import run_ranks

DIM = 5  # no power of two: rows lie across pages
WARM = [
    Table(name="split", rows=3000, sharding="row"),
    Table(name="near", rows=70),
    Table(name="whole", rows=2000, pooling="mean"),
    Table(name="copied", rows=9, sharding="replicated"),
]
COLD = [replace(table, cold=table.name != "near") for table in WARM]
HOT = {"split": [0, 1, 2, 9]}


def _both(rank, ranks, folder):
    found = []
    for optimizer in (RowwiseAdagrad(0.1), SGD(0.1)):
        batches = many_ranks.random_batches(WARM, [24, 24, 5], most=3, seed=1, dtype=torch.float32)
        for tables in (WARM, COLD):
            words = (rank, ranks, tables, DIM, batches, optimizer, 0.1)
            found.append(many_ranks.train(*words, hot=HOT, cold_folder=folder))
    return found, os.listdir(folder)


@pytest.mark.parametrize("ranks", [1, 2])
def test_cold_tables_train_the_same_bits(tmp_path, ranks):
    for found, left in run_ranks(ranks, _both, tmp_path):
        for warm, cold in (found[:2], found[2:]):
            assert warm["losses"] == cold["losses"]
            for name, (_, rows) in warm["shards"].items():
                assert torch.equal(rows, cold["shards"][name][1]), name
                if warm["states"][name] is not None:
                    assert torch.equal(warm["states"][name], cold["states"][name]), name
        assert left == []  # files have no names, even while they are used


def test_cold_shards_lie_behind_all_others():
    layout = Layout(tuple(COLD), 2, 1)
    assert layout.base_T.tolist() == [
        ALIGNMENT,
        0,
        ALIGNMENT + 1500,
        ALIGNMENT + 1500 + 2000 * (layout.first_T[2] == 1),
        layout.local_rows,
    ]
    assert layout.memory_rows == ALIGNMENT
    assert layout.local_rows - ALIGNMENT == layout.file_rows


def test_mapped_rows_are_zero_and_keep_what_is_written(tmp_path):
    rows_RD = allocate_rows(ALIGNMENT, 1000, (3,), torch.float64, tmp_path / "made")
    assert rows_RD.shape == (ALIGNMENT + 1000, 3)
    assert not rows_RD.any()
    rows_RD[-1] = rows_RD[ALIGNMENT - 1] = 7.0
    assert rows_RD.sum() == 42
    mapped = os.stat(tmp_path / "made").st_dev
    assert f"{os.major(mapped):02x}:{os.minor(mapped):02x}" in Path("/proc/self/maps").read_text()


def test_cold_tables_without_a_folder_are_refused():
    with pytest.raises(ConfigError, match=r"^embeddings: cold tables need cold_folder"):
        made(COLD, DIM)


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(
        PlanError, match=r"^embeddings.cold_folder: no file can be made in '.*/file/in': Not a dir"
    ):
        made(COLD, DIM, cold_folder=tmp_path / "file" / "in")


def test_a_full_disk_is_an_error_before_training(small_disk):
    big = [Table(name="big", rows=100_000, cold=True)]
    with pytest.raises(
        PlanError, match=r"has 0.000102 GB free, this rank's cold rows need 0.002 GB \(No space left"
    ):
        made(big, DIM, cold_folder=small_disk)


def _in_little_memory(rank, ranks, folder):
    """Train a table of 128 MB with 64 MB more memory than there was; returns what happened, cold and not."""
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    limit = 1024 * int(status["VmData"].split()[0]) + (64 << 20)
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))  # of memory that is no file's
    found = []
    for cold in (True, False):
        table = Table(name="large", rows=1 << 20, cold=cold)
        try:
            embeddings = made([table], 32, world=one_rank(), cold_folder=folder)
        except RuntimeError as error:
            found.append(str(error).splitlines()[0])
            continue
        lookups = Lookups.single(torch.arange(0, 1 << 20, 1 << 13)[None])
        before = embeddings(lookups).detach().clone()
        embeddings(lookups).sum().backward()
        embeddings.optimizer.step()
        found.append(bool((embeddings.eval()(lookups) < before).all()))
    return found


def test_a_cold_table_may_be_larger_than_memory(tmp_path):
    ((cold, warm),) = run_ranks(1, _in_little_memory, tmp_path)
    assert cold is True
    assert "not enough memory" in warm or "can't allocate memory" in warm
