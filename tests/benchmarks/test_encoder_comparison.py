"""Encoders are compared on the blocks that ranks would send, by the bytes of each."""

from __future__ import annotations

import json
from dataclasses import asdict
from itertools import islice

import pytest
import torch
from rich.console import Console

from benchmarks.adaptation import trials as policies
from benchmarks.adaptation.benchmark import AdaptationResult, PolicyRow, render
from benchmarks.adaptation.trials import _BATCHES, _SAMPLES, MODEL, RANKS, compare_encoders, settings_for
from benchmarks.training.worker import paper_bound
from laconic.adapt.policy import FixedPolicy
from laconic.codecs import BoundedRows, Huffman, Hybrid, VectorLz
from laconic.data import SyntheticSettings, open_source
from laconic.exchange.exchange_plan import ExchangePlan, TableCodecs
from laconic.train.rehearse import rehearse

ROWS = (2000, 300, 5)
DATA = SyntheticSettings(kind="synthetic", rows=ROWS, samples=32 * 1024, eval_samples=1024)
POOLED = {"vector_lz": VectorLz, "huffman": Huffman, "hybrid": Hybrid, "bounded_rows": BoundedRows}


@pytest.fixture(scope="module")
def source():
    return open_source(DATA)


@pytest.fixture(scope="module")
def stage(source):
    stage = rehearse(settings_for("generated", DATA, policies.exact(), seed=0), source, RANKS)
    stage.train(stage.take(8), stage.exact)
    return stage


@pytest.fixture(scope="module")
def rows(stage, source):
    ranks = stage.subject.rows.shards()
    before = [shards.weight_RD.clone() for shards in ranks]
    found = compare_encoders("generated", stage, source)
    for shards, expected in zip(ranks, before, strict=True):
        assert torch.equal(shards.weight_RD, expected)  # nothing was rounded where it is kept
    return found


def batches(source, samples):
    return list(
        islice(source.batches("train", global_batch=samples * RANKS, rank=0, ranks=1, epoch=1), _BATCHES)
    )


def test_every_table_has_a_row_at_each_size_and_so_have_all_together(rows, stage):
    assert [(row.samples_per_rank, row.table) for row in rows] == [
        (samples, table) for samples in _SAMPLES for table in (*stage.names, None)
    ]
    assert [row.bound for row in rows[:4]] == [*map(paper_bound, ROWS), None]
    assert [row.table_rows for row in rows[:4]] == [*ROWS, sum(ROWS)]


@pytest.mark.parametrize("figure", POOLED)
@pytest.mark.parametrize("samples", _SAMPLES)
def test_pooled_ratios_are_those_of_blocks_made_by_hand(rows, stage, source, figure, samples):
    for t, row in enumerate(row for row in rows if row.samples_per_rank == samples and row.table):
        codec = POOLED[figure](bound=row.bound, relative_to="range")
        weight_RD = stage.subject.rows.table_shard(row.table)[1]
        sizes_N = torch.zeros(RANKS)
        plain = 0
        for batch in batches(source, samples):
            ids_TB = batch.lookups.ids_L.reshape(len(ROWS), -1)
            for rank, ids_B in enumerate(ids_TB[t].chunk(RANKS)):
                sizes_N[rank] += len(codec.encode(weight_RD[ids_B]))
                plain += len(ids_B) * MODEL.dim * 4
        # whoever has the table sends itself nothing
        possible = (plain * (RANKS - 1) / RANKS / (sizes_N.sum() - sizes_N)).tolist()
        assert any(getattr(row, figure) == pytest.approx(ratio) for ratio in possible)


def test_distinct_rows_are_those_of_an_exchange(rows, stage, source):
    ledger = stage.subject.new_ledger()
    codecs = [BoundedRows(paper_bound(rows), relative_to="range") for rows in ROWS]
    plan = ExchangePlan(tuple(TableCodecs(forward=codec) for codec in codecs))
    samples = 0
    with stage.subject.under(FixedPolicy(plan), ledger):
        for batch in batches(source, _SAMPLES[0]):
            stage.subject.embed(batch)
            samples += len(batch)
    plain = samples * (RANKS - 1) / RANKS * MODEL.dim * 4
    found = [row.distinct for row in rows[: len(ROWS)]]
    assert found == pytest.approx((plain / ledger.accounts["forward"].after_T).tolist())


def test_the_hybrid_says_which_of_the_two_it_was(rows):
    for row in rows:
        if row.lz_blocks == 0:
            assert row.hybrid == row.huffman
        if row.huffman_blocks == 0:
            assert row.hybrid == row.vector_lz
        assert row.hybrid >= min(row.vector_lz, row.huffman)
    few, all_of_them = rows[2], rows[3]
    assert few.lz_blocks > 0  # five rows: every row has been seen before
    assert all_of_them.lz_blocks == sum(row.lz_blocks for row in rows[:3])
    assert all_of_them.huffman_blocks == sum(row.huffman_blocks for row in rows[:3])


def test_a_table_shows_every_encoder(rows):
    console = Console(width=160)
    with console.capture() as capture:
        console.print(render(AdaptationResult([], rows)))
    text = capture.get()
    assert (
        "generated: encoders of rows at the paper's bounds, 4 ranks, 256 samples a rank unless said" in text
    )
    assert [text.count(f" {name} ") for name in ("c0", "c1", "c2")] == [1, 1, 1]
    assert "all, 2048 samples" in text
    for row in (rows[0], rows[3], rows[-1]):
        for ratio in (row.vector_lz, row.huffman, row.hybrid, row.bounded_rows, row.distinct):
            assert f"{ratio:.1f}x" in text


def test_rows_of_encoders_come_after_those_of_policies_and_name_a_table(rows):
    result = AdaptationResult([PolicyRow(data="books", policy="exact")], rows)
    policy, *encoders = json.loads(json.dumps([asdict(row) for row in result.all_rows()]))
    assert (policy["policy"], "table" in policy) == ("exact", False)
    assert [row["table"] for row in encoders[:4]] == ["c0", "c1", "c2", None]
    assert not any("policy" in row for row in encoders)
