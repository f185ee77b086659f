"""Ranks read their share of the files, decode ahead in bounded memory, and end what they began."""

from __future__ import annotations

import threading

import pyarrow.parquet as pq
import pytest

from laconic.data.columns import RandomSplit
from laconic.data.parquet import Parquet
from laconic.errors import FormatError
from tests.data.tables import COLUMNS, bags, table, write

ALL = COLUMNS.model_copy(update={"split": RandomSplit(fraction=0.0)})


def reads_of(source, monkeypatch):
    """Return a list that grows by the number of each row group that is read."""
    groups: list[int] = []
    original = source._groups.read
    monkeypatch.setattr(source._groups, "read", lambda g, c: groups.append(g) or original(g, c))
    return groups


@pytest.mark.parametrize(("ranks", "streams"), [(1, 8), (2, 8), (4, 8), (8, 8), (3, 8), (5, 1)])
def test_a_rank_reads_its_share_of_the_row_groups_and_each_once(tmp_path, monkeypatch, ranks, streams):
    source = Parquet([write(tmp_path / "a", rows=1200, row_group=25)], ALL, streams=streams)
    shares = []
    for rank in range(ranks):
        groups = reads_of(source, monkeypatch)
        for _ in source.batches("train", global_batch=100, rank=rank, ranks=ranks):
            pass
        assert len(set(groups)) == len(groups) <= -(-48 // ranks) + 1
        shares.append(set(groups))
    assert set().union(*shares) == set(range(48))


def test_global_batches_are_the_same_on_all_numbers_of_ranks_that_divide_the_streams(tmp_path):
    source = Parquet([write(tmp_path / "a", rows=700, row_group=30)], COLUMNS, streams=8)
    expected = None
    for ranks in (1, 2, 4, 8):
        parts = [
            list(source.batches("train", global_batch=64, rank=rank, ranks=ranks)) for rank in range(ranks)
        ]
        found = [[x for part in step for x in bags(part)] for step in zip(*parts, strict=True)]
        expected = expected or found
        assert found == expected


def test_an_epoch_goes_on_with_its_streams_on_two_then_four_then_three_ranks(tmp_path):
    source = Parquet([write(tmp_path / "a", rows=900, row_group=40)], ALL, streams=4)
    streams, seen, at = source.streams("train", 2), [], 0
    for ranks, until in ((2, 300), (4, 630), (3, 900)):
        here = at
        for rank in range(ranks):
            position = here
            parts = source.batches(
                "train", global_batch=30, rank=rank, ranks=ranks, start=here, epoch=1, streams=streams
            )
            for part in parts:
                if position >= until:
                    break
                seen += bags(part)
                position = min(position + 30, 900)
        at = until
    assert sorted(seen) == sorted(bags_of_all(source))
    assert len(set(seen)) == 900


def bags_of_all(source):
    return [x for part in source.batches("train", global_batch=900, rank=0, ranks=1) for x in bags(part)]


def test_row_groups_are_held_for_each_stream_and_few_more(tmp_path, monkeypatch):
    source = Parquet([write(tmp_path / "a", rows=1000, row_group=10)], ALL, streams=16)
    groups = reads_of(source, monkeypatch)
    parts = source.batches("train", global_batch=20, rank=0, ranks=1)
    next(parts)
    assert len(groups) <= 16 + 2
    parts.close()


def test_a_batch_given_up_leaves_no_thread(tmp_path):
    source = Parquet([write(tmp_path / "a")], ALL)
    parts = source.batches("train", global_batch=20, rank=0, ranks=1)
    next(parts)
    parts.close()
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("laconic-data")]


def test_what_the_thread_cannot_read_is_an_error_where_batches_are_asked_for(tmp_path):
    folder = write(tmp_path / "a", files=2, row_group=60)
    source = Parquet([folder], ALL)
    path = folder / "1.parquet"
    whole = path.read_bytes()
    path.write_bytes(whole[:4] + bytes(len(whole) // 2) + whole[4 + len(whole) // 2 :])
    with pytest.raises(FormatError, match=r"1\.parquet: row group \d+ cannot be read, column '\w+'"):
        list(source.batches("train", global_batch=4, rank=0, ranks=1))
    path.unlink()
    with pytest.raises(FormatError, match=r"1\.parquet: the file is gone"):
        list(source.batches("train", global_batch=4, rank=0, ranks=1))
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("laconic-data")]


def test_ranks_of_fewer_samples_than_streams_have_empty_parts(tmp_path):
    folder = tmp_path / "a"
    folder.mkdir()
    pq.write_table(table(5), folder / "0.parquet")
    source = Parquet([folder], ALL)
    parts = [list(source.batches("train", global_batch=2, rank=rank, ranks=4)) for rank in range(4)]
    assert {len(part) for part in parts} == {3}
    assert sum(len(samples) for part in parts for samples in part) == 5


def test_an_epoch_has_the_memory_of_the_one_before_but_not_of_one_that_goes_on(tmp_path):
    source = Parquet([write(tmp_path / "a", rows=900, row_group=40)], COLUMNS, streams=4)
    ask = {"global_batch": 50, "rank": 0, "ranks": 1}
    expected = [[bags(x) for x in source.batches("train", **ask, epoch=epoch)] for epoch in (0, 1)]
    kept = source._memory.borrow(1)
    assert kept.label_N.size >= 4 * 40
    source._memory.give_back(kept)
    both = zip(*(source.batches("train", **ask, epoch=epoch) for epoch in (0, 1)), strict=True)
    assert [[bags(a), bags(b)] for a, b in both] == [list(pair) for pair in zip(*expected, strict=True)]
    assert source._memory.borrow(1).label_N is kept.label_N
