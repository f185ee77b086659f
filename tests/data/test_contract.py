"""What every source promises, checked on each of them."""

from __future__ import annotations

from itertools import islice

import numpy as np
import pytest
import torch

from laconic.data import Synthetic, SyntheticSettings
from laconic.data.columns import TimeSplit
from laconic.data.hashing import key64, mix64
from laconic.data.parquet import Parquet
from laconic.data.source import shuffled
from laconic.errors import ConfigError
from tests.cases import each
from tests.data.tables import COLUMNS, bags, same, table, write

SOURCES = ["synthetic", "synthetic bags", "parquet", "parquet in one stream", "parquet by time"]


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    folder = write(tmp_path_factory.mktemp("contract") / "set", rows=270, row_group=45)
    split = TimeSplit(kind="time", fraction=0.25, column="time")
    by_time = COLUMNS.model_copy(update={"split": split})

    def make(name, seed):
        match name:
            case "synthetic":
                return Synthetic(
                    SyntheticSettings(rows=[50, 3, 1000], dense=2, samples=201, eval_samples=67, seed=seed)
                )
            case "synthetic bags":
                return Synthetic(
                    SyntheticSettings(
                        rows=[50, 3, 1000], bags=[1, 4, 2], samples=201, eval_samples=67, seed=seed
                    )
                )
            case "parquet":
                return Parquet([folder], COLUMNS, seed=seed, streams=8)
            case "parquet in one stream":
                return Parquet([folder], COLUMNS, seed=seed, held_rows=1)
            case _:
                return Parquet([folder], by_time, seed=seed, streams=4)

    return lambda name, seed=0: make(name, seed)


@pytest.fixture(params=SOURCES)
def source(request, sources):
    return sources(request.param)


def read(source, split="train", global_batch=64, rank=0, ranks=1, **kw):
    return list(source.batches(split, global_batch=global_batch, rank=rank, ranks=ranks, **kw))


def flat(batches):
    return [sample for batch in batches for sample in bags(batch)]


@each("split", ["train", "eval"])
def test_an_epoch_has_every_sample_and_types_are_right(source, split):
    batches = read(source, split)
    total = source.samples_in(split)
    assert [len(batch) for batch in batches] == [64] * (total // 64) + [total % 64] * (total % 64 > 0)
    for batch in batches:
        assert batch.label_B.dtype == batch.dense_BF.dtype == torch.float32
        assert batch.dense_BF.shape == (len(batch), len(source.schema.dense))
        assert batch.lookups.ids_L.dtype == batch.lookups.offsets.dtype == torch.int64
        assert batch.lookups.samples == len(batch)
        assert set(batch.label_B.tolist()) <= {0.0, 1.0}
    for _, _, tables in flat(batches):
        for feature, ids in zip(source.schema.categorical, tables, strict=True):
            assert feature.bag or len(ids) == 1
            assert all(0 <= number < feature.rows for number in ids)


@each("split", ["train", "eval"])
@each(("ranks", "global_batch"), [(5, 3), (2, 64), (5, 64), (2, 10_000)])
def test_parts_of_ranks_are_the_global_batch(source, split, ranks, global_batch):
    whole = read(source, split, global_batch, streams=source.streams(split, ranks))
    parts = [read(source, split, global_batch, rank, ranks) for rank in range(ranks)]
    assert {len(part) for part in parts} == {len(whole)}
    for k, batch in enumerate(whole):
        pieces = [part[k] for part in parts]
        n = len(batch)
        even = [(r + 1) * n // ranks - r * n // ranks for r in range(ranks)]
        if isinstance(source, Parquet) and n % ranks:
            assert max(abs(len(piece) - n / ranks) for piece in pieces) <= 1
        else:
            assert [len(piece) for piece in pieces] == even
        assert flat(pieces) == bags(batch)


def test_an_empty_part_has_the_right_shapes(source):
    parts = [read(source, global_batch=1, rank=rank, ranks=2)[0] for rank in range(2)]
    (empty,) = (part for part in parts if not len(part))
    assert empty.dense_BF.shape == (0, len(source.schema.dense))
    assert empty.lookups.tables == source.schema.tables
    assert empty.lookups.offsets.tolist() == [0]


@pytest.mark.parametrize("split", ["train", "eval"])
def test_resuming_anywhere_gives_what_would_have_come_on_any_number_of_ranks(source, split):
    streams = source.streams(split, 2)
    samples = flat(read(source, split, 1, epoch=1, streams=streams))
    last = source.samples_in(split)
    for start in (*range(0, last, 11), last - 1, last):  # in batches of 20 and on three numbers of ranks
        ranks = 1 + start % 3
        some = 2 if start % 55 else None  # batches to compare: all of them now and then
        parts = [
            islice(
                source.batches(
                    split,
                    global_batch=20,
                    rank=rank,
                    ranks=ranks,
                    epoch=1,
                    start=start,
                    streams=streams,
                ),
                some,
            )
            for rank in range(ranks)
        ]
        at = start
        for step in zip(*parts, strict=True):
            end = min(at - at % 20 + 20, last)
            assert sorted(flat(step)) == sorted(samples[at:end])
            at = end
        assert some or at == last


def test_batches_after_a_resume_are_cut_where_they_would_have_been(source):
    whole = read(source)
    for k, batch in enumerate(read(source, start=2 * 64)):
        assert same(batch, whole[k + 2])
    assert flat(whole[:2] + read(source, start=2 * 64)) == flat(whole)
    assert [len(batch) for batch in read(source, start=100)][:2] == [28, 64]


def test_an_epoch_is_another_order_of_the_same_samples(source):
    first, second = flat(read(source, epoch=0)), flat(read(source, epoch=1))
    assert first != second
    assert sorted(first) == sorted(second)
    assert flat(read(source, epoch=1)) == second
    assert flat(read(source, "eval", epoch=0)) == flat(read(source, "eval", epoch=1))


@pytest.mark.parametrize("name", SOURCES)
def test_the_seed_decides_the_order(sources, name):
    assert flat(read(sources(name, 1))) == flat(read(sources(name, 1)))
    assert flat(read(sources(name, 1))) != flat(read(sources(name, 2)))


def test_train_and_eval_share_no_sample(source):
    dense = {split: {sample[1] for sample in flat(read(source, split))} for split in ("train", "eval")}
    assert len(dense["train"]) == source.samples_in("train")
    assert dense["train"].isdisjoint(dense["eval"])


@each(
    ("wrong", "message"),
    [
        ({"split": "test"}, "data: no split 'test' (known: train, eval)"),
        ({"global_batch": 0}, "data: global_batch must be at least 1, got 0"),
        ({"rank": 2, "ranks": 2}, "data: rank must be in 0..1 of 2 ranks, got 2"),
        ({"start": -1}, "data: start must be in 0..{total}, got -1; the epoch has {total} samples"),
    ],
)
def test_what_cannot_be_is_refused_before_the_first_batch(source, wrong, message):
    asked = {"split": "train", "global_batch": 8, "rank": 0, "ranks": 1, **wrong}
    with pytest.raises(ConfigError) as caught:
        source.batches(asked.pop("split"), **asked)
    assert str(caught.value) == message.format(total=source.samples_in("train"))


@pytest.mark.parametrize("split", ["train", "eval"])
def test_lookups_in_order_are_those_of_an_epoch(source, split):
    def looked_up(lookups):
        ends = lookups.offsets.tolist()
        count = lookups.samples
        ids = lookups.ids_L.tolist()
        return [
            tuple(tuple(ids[ends[t * count + b] : ends[t * count + b + 1]]) for t in range(lookups.tables))
            for b in range(count)
        ]

    in_order = [sample for lookups in source.lookups_in_order(split) for sample in looked_up(lookups)]
    epoch = [tables for _, _, tables in flat(read(source, split))]
    assert sorted(in_order) == sorted(epoch)
    if split == "eval":
        assert in_order == epoch
    else:
        assert in_order != epoch
    with pytest.raises(ConfigError, match="no split 'test'"):
        source.lookups_in_order("test")


def test_lookups_in_order_come_as_the_files_have_them(tmp_path):
    folder = write(tmp_path / "set", rows=270, row_group=30)
    everything = COLUMNS.model_copy(update={"split": COLUMNS.split.model_copy(update={"fraction": 0.0})})
    blocks = Parquet([folder], everything).lookups_in_order("train")
    ids = [number for lookups in blocks for number in lookups.ids_L[: lookups.samples].tolist()]
    assert ids == table(270)["id"].to_pylist()


@pytest.mark.parametrize("n", [0, 1, 2, 1000, 65536, 100_000])
def test_an_order_that_is_drawn_is_that_of_the_hashes(n):
    key = key64("order", n)
    upper = mix64(np.arange(n, dtype=np.uint64) ^ key) >> np.uint64(max(n - 1, 1).bit_length())
    assert np.array_equal(shuffled(n, key), np.argsort(upper, kind="stable"))
