"""Rows of cold tables that stay in memory change where rows are, and nothing else."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from laconic.adapt.policy import FixedPolicy
from laconic.codecs import BoundedRows
from laconic.errors import ConfigError, PlanError
from laconic.exchange import SGD, RowwiseAdagrad, Table
from laconic.exchange.exchange_plan import ExchangePlan, TableCodecs
from laconic.lookups import Lookups
from tests.cases import each
from tests.distributed import many_ranks
from tests.distributed.made import made
from tests.distributed.ranks import run_ranks

DIM = 5
TABLES = many_ranks.TABLES
COLD = [replace(table, cold=True) for table in TABLES]
HOT = {"split": [1, 9], "whole": [0]}
WARM = {
    "split": [0, 2, 3, 7, 13, 14, 299],
    "whole": range(1, 50),
    "copied": [0, 39],
    "pooled": [0, 1, 4],
    "partial": range(1, 90, 3),  # of three ranks one has all of them
}
ALL = {table.name: range(table.rows) for table in TABLES}
PLACES = {
    "memory": (TABLES, {}),
    "cold": (COLD, {}),
    "warm": (COLD, {"warm": WARM}),
    "hot": (COLD, {"hot": HOT, "warm": WARM}),
    "early": (COLD, {"hot": HOT, "warm": WARM, "look_ahead": True}),
    "all": (COLD, {"warm": ALL}),
}
CODECS = TableCodecs(
    BoundedRows(0.03, relative_to="range"), BoundedRows(0.5, relative_to="rms", rounding="unbiased")
)


KINDS = {
    "adagrad": (RowwiseAdagrad(0.1), torch.float64, None),
    "sgd": (SGD(0.1), torch.float32, None),
    "coded": (RowwiseAdagrad(0.1), torch.float32, FixedPolicy(ExchangePlan((CODECS,) * len(TABLES)))),
}
# with codecs, copies of hot rows are rounded otherwise
RUNS = [(kind, name) for kind in KINDS for name in PLACES if kind != "coded" or name not in ("hot", "early")]


def _train(rank, ranks, folder):
    found = {}
    for kind, name in RUNS:
        (optimizer, dtype, policy), (tables, placed) = KINDS[kind], PLACES[name]
        batches = many_ranks.random_batches(TABLES, [24, 7, 1, 24], most=3, seed=1, dtype=dtype)
        words = (rank, ranks, tables, DIM, batches, optimizer, 0.1)
        found[kind, name] = many_ranks.train(*words, policy=policy, cold_folder=folder, **placed)
    return found


@pytest.fixture(scope="module", params=[1, 3], ids=["1 rank", "3 ranks"])
def results(request, tmp_path_factory):
    return run_ranks(request.param, _train, tmp_path_factory.mktemp("cold"))


@each(("kind", "name"), [run for run in RUNS if run[1] != "memory"])
def test_warm_rows_change_no_bit_of_the_model(results, kind, name):
    for result in results:
        plain, other = result[kind, "memory"], result[kind, name]
        assert other["losses"] == plain["losses"]
        assert all(torch.equal(*pair) for pair in zip(other["dense"], plain["dense"], strict=True))
        for table, (ids, rows) in plain["shards"].items():
            assert other["shards"][table][0] == ids
            assert torch.equal(other["shards"][table][1], rows), table
            if plain["states"][table] is not None:
                assert torch.equal(other["states"][table], plain["states"][table]), table


def test_warm_rows_change_no_byte_of_a_message(results):
    for result in results:
        for kind in ("adagrad", "sgd", "coded"):
            sent = [row["after"] for row in result[kind, "memory"]["tables"]]
            assert sent == [row["after"] for row in result[kind, "warm"]["tables"]]


def _embeddings(folder, warm=None, hot=None, **more):
    table = Table(name="t", rows=100, cold=True)
    return made([table], DIM, cold_folder=folder, warm=warm, hot=hot, **more)


def _step(embeddings, ids):
    embeddings(Lookups.single(torch.tensor([ids]))).sum().backward()
    embeddings.optimizer.step()


def test_the_file_is_not_touched_for_warm_rows_until_somebody_reads_the_shard(tmp_path):
    embeddings = _embeddings(tmp_path, {"t": [3, 5, 50]})
    file_RD = embeddings.engines[0].weight_RD[-100:]
    first = file_RD.clone()
    _step(embeddings, [3, 50, 3])
    assert torch.equal(file_RD, first)
    _step(embeddings, [3, 4])
    assert (file_RD != first).any(1).nonzero().flatten().tolist() == [4]
    _, rows, _ = embeddings.engines[0].table_shard("t")
    assert (rows != first).any(1).nonzero().flatten().tolist() == [3, 4, 50]


def test_what_is_written_to_a_shard_is_found_once_it_is_taken(tmp_path):
    embeddings = _embeddings(tmp_path, {"t": [0, 7, 8, 63, 99]}).eval()
    _, rows, state = embeddings.engines[0].table_shard("t")
    rows.copy_(torch.arange(100.0)[:, None].expand(100, DIM))
    state.copy_(torch.arange(100.0))
    embeddings.engines[0].take_shard("t")
    found = embeddings(Lookups.single(torch.arange(100)[None]))
    assert torch.equal(found[:, 0, 0], torch.arange(100.0))
    assert torch.equal(embeddings.engines[0].table_shard("t")[2], torch.arange(100.0))


def test_a_journal_takes_back_warm_and_cold_rows(tmp_path):
    embeddings = _embeddings(tmp_path, {"t": range(0, 100, 2)})
    first = embeddings.engines[0].table_shard("t")[1].clone()
    embeddings.engines[0].begin_journal()
    _step(embeddings, list(range(20)))
    assert not torch.equal(embeddings.engines[0].table_shard("t")[1], first)
    embeddings.engines[0].undo()
    assert torch.equal(embeddings.engines[0].table_shard("t")[1], first)


def test_a_state_of_other_warm_rows_is_refused(tmp_path):
    trained = _embeddings(tmp_path, {"t": [1, 2]})
    _step(trained, [1, 2, 3])
    same, other = _embeddings(tmp_path, {"t": [1, 2]}, seed=9), _embeddings(tmp_path, {"t": [1, 3]})
    same.load_state_dict(trained.state_dict())
    assert torch.equal(same.engines[0].table_shard("t")[1], trained.engines[0].table_shard("t")[1])
    with pytest.raises(ConfigError, match=r"tables, ranks, optimizer, hot or warm rows differ$"):
        other.load_state_dict(trained.state_dict())


@pytest.mark.parametrize(
    ("warm", "message"),
    [
        ({"nosuch": [0]}, r"^warm rows: no table 'nosuch' \(known: t, near\)$"),
        ({"t": [3, 100]}, r"^warm rows of table 't': expected ids below its 100 rows, got 100; plan again$"),
        ({"t": [-1]}, r"expected ids below its 100 rows, got -1; plan again$"),
        ({"t": [3, 3]}, r"^warm rows of table 't': expected ascending ids, got 3 after 3$"),
        ({"t": [0.5]}, r"expected a list of ids, got float64 of shape \(1,\)$"),
        (
            {"near": [1]},
            r"^warm rows of table 'near': all its rows are in memory; leave them out, or make it cold$",
        ),
        ({"t": [3, 4]}, r"^warm rows of table 't': row 4 is hot, so every rank has it in memory already"),
    ],
)
def test_warm_rows_that_cannot_be_are_refused(tmp_path, warm, message):
    tables = [Table(name="t", rows=100, cold=True), Table(name="near", rows=5)]
    with pytest.raises(PlanError, match=message):
        made(tables, DIM, cold_folder=tmp_path, hot={"t": [4]}, warm=warm)


def _other_warm_rows(rank, ranks, folder):
    _embeddings(folder, {"t": [rank]})


def test_ranks_with_other_warm_rows_all_raise(tmp_path):
    for kind, message, _ in run_ranks(2, _other_warm_rows, tmp_path, check=False):
        assert kind == "CommError"
        assert "out of step" in message
