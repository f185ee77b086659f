"""Copies of hot rows change where rows are, and nothing else."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from laconic.adapt.policy import FixedPolicy
from laconic.codecs import BoundedRows
from laconic.errors import PlanError
from laconic.exchange import SGD, RowwiseAdagrad, Table
from laconic.exchange.exchange_plan import ExchangePlan, TableCodecs
from laconic.exchange.tables import keys
from laconic.exchange.tables.copies import HotRows
from laconic.lookups import Lookups
from tests.cases import each
from tests.distributed import many_ranks
from tests.distributed.made import made
from tests.distributed.ranks import run_ranks

DIM = 4
TABLES = [
    Table(name="split", rows=300, sharding="row"),
    Table(name="mean", rows=41, sharding="row", pooling="mean"),
    Table(name="whole", rows=50),
    Table(name="copied", rows=5, sharding="replicated"),
    Table(name="idle", rows=9, sharding="row"),
    Table(name="pooled", rows=30, send="pooled"),
]
IDLE = 4
SIZES = [24, 24, 7, 1, 24]  # uneven, fewer samples than ranks
SOME = {"split": [0, 1, 2, 7, 299], "mean": [0, 3], "idle": [4]}
ALL = {table.name: range(table.rows) for table in TABLES if table.name not in ("copied", "pooled")}
PLACES = {"nowhere": {}, "some": SOME, "all": ALL}
CODECS = TableCodecs(
    BoundedRows(0.03, relative_to="range"), BoundedRows(0.5, relative_to="rms", rounding="unbiased")
)


def _train(rank, ranks):
    """Every placement with both optimizers, exactly and with codecs."""
    found = {}
    for kind, optimizer, dtype in (
        ("adagrad", RowwiseAdagrad(0.1), torch.float64),
        ("sgd", SGD(0.1), torch.float32),
        ("coded", RowwiseAdagrad(0.1), torch.float32),
    ):
        policy = FixedPolicy(ExchangePlan((CODECS,) * len(TABLES))) if kind == "coded" else None
        batches = many_ranks.random_batches(TABLES, SIZES, most=3, seed=1, dtype=dtype, idle=IDLE)
        for name, hot in PLACES.items():
            empty = ranks - 1 if ranks > 1 and kind == "sgd" else None
            found[kind, name] = many_ranks.train(
                rank, ranks, TABLES, DIM, batches, optimizer, 0.1, True, empty, policy, hot=hot
            )
    return found


@pytest.fixture(scope="module", params=[1, 3], ids=["1 rank", "3 ranks"])
def results(request):
    return run_ranks(request.param, _train)


@each("name", ["some", "all"])
@each("kind", ["adagrad", "sgd"])
def test_hot_rows_change_no_bit_of_the_model(results, kind, name):
    for rank, result in enumerate(results):
        plain, hot = result[kind, "nowhere"], result[kind, name]
        assert hot["losses"] == plain["losses"]
        assert all(torch.equal(*pair) for pair in zip(hot["dense"], plain["dense"], strict=True))
        for table, (ids, rows) in plain["shards"].items():
            assert hot["shards"][table][0] == ids
            assert torch.equal(hot["shards"][table][1], rows), (rank, table)
            if kind == "adagrad":
                assert torch.equal(hot["states"][table], plain["states"][table]), (rank, table)


@pytest.mark.parametrize("kind", ["adagrad", "sgd", "coded"])
def test_copies_are_equal_on_all_ranks_and_trained(results, kind):
    first = many_ranks.first_weights(TABLES, DIM, torch.float64)
    for name in ("some", "all"):
        for table, copies in results[0][kind, name]["copies"].items():
            for result in results[1:]:
                others = result[kind, name]["copies"][table]
                assert all(torch.equal(*pair) for pair in zip(copies, others, strict=True)), table
            whole = many_ranks.whole_tables([r[kind, name] for r in results], TABLES)
            t = [each.name for each in TABLES].index(table)
            ids = torch.tensor(list(PLACES[name].get(table, [])), dtype=torch.int64)
            assert torch.equal(copies[0].double(), whole[t][ids])
            if len(ids) and table != "idle":
                assert not torch.equal(copies[0].double(), first[t][ids])


def test_rows_that_are_hot_do_not_travel_and_their_gradients_do(results):
    for result in results:
        rows = {(row["table"], row["direction"]): row for row in result["sgd", "all"]["tables"]}
        for table in ALL:
            assert rows[table, "forward"]["after"] == rows[table, "backward"]["after"] == 0
            assert rows[f"{table} (hot)", "forward"]["after"] == 0
        sent = rows["split (hot)", "backward"]["after"], rows["split (hot)", "ids"]["after"]
        assert (max(sent) > 0) == (len(results) > 1)


def _bytes(rank, ranks, ids_N):
    """Bytes of gradients that a rank sends for a replicated table of which it looks up these ids."""
    embeddings = made([Table(name="copied", rows=99, sharding="replicated")], DIM)
    first = embeddings.engines[0].weight_RD.clone()
    embeddings(Lookups.single(torch.tensor([ids_N[rank]]))).sum().backward()
    embeddings.optimizer.step()
    changed = (embeddings.engines[0].weight_RD != first).any(1).nonzero().flatten().tolist()
    return embeddings.engines[0].ledger.rows()[2]["after"], changed, embeddings.engines[0].weight_RD


def test_owners_sum_gradients_and_send_everyone_the_sums():
    row = 4 * DIM
    same, apart = [list(range(8))] * 3, [[0, 1], [2, 3], [4, 5, 6]]
    results = run_ranks(3, _bytes, same)
    assert sum(sent for sent, *_ in results) == (2 * 8 + 2 * 8) * row  # not 2 * 24
    assert all(changed == list(range(8)) for _, changed, _ in results)
    results = run_ranks(3, _bytes, apart)
    # the rank of row k is k modulo 3, so that ranks send 1, 2 and 2 gradients, and 3, 2 and 2 sums
    assert [sent for sent, *_ in results] == [(1 + 2 * 3) * row, (2 + 2 * 2) * row, (2 + 2 * 2) * row]
    assert all(torch.equal(rows, results[0][2]) for *_, rows in results)


def test_two_ranks_send_each_other_gradients():
    row = 4 * DIM
    results = run_ranks(2, _bytes, [[0, 1, 2], [2, 3]])
    assert [sent for sent, *_ in results] == [3 * row, 2 * row]
    assert all(changed == [0, 1, 2, 3] for _, changed, _ in results)
    assert torch.equal(results[0][2], results[1][2])


@pytest.mark.parametrize("most", [0, 1 << 28], ids=["searched", "as bits"])
def test_ids_of_any_order_find_their_part(monkeypatch, most):
    monkeypatch.setattr(keys, "_SMALL_MAP", most)
    hot = HotRows(TABLES, SOME)
    generator = np.random.default_rng(0)
    table_L = np.sort(generator.integers(0, len(TABLES), 500))
    ids_L = np.array([generator.integers(0, TABLES[t].rows) for t in table_L])
    part_L, row_L = hot.route(table_L, ids_L)
    names = [part.name for part in hot.parts]
    for t, i, part, row in zip(table_L, ids_L, part_L, row_L, strict=True):
        name, ids = TABLES[t].name, list(SOME.get(TABLES[t].name, []))
        expected = (names.index(f"{name} (hot)"), ids.index(i)) if i in ids else (t, i)
        assert (part, row) == expected


@each(
    ("hot", "message"),
    [
        (
            {"nosuch": [0]},
            r"^hot rows: no table 'nosuch' \(known: split, mean, whole, copied, idle, pooled\)$",
        ),
        (
            {"mean": [3, 41]},
            r"^hot rows of table 'mean': expected ids below its 41 rows, got 41; plan again$",
        ),
        ({"mean": [-1, 3]}, r"expected ids below its 41 rows, got -1; plan again$"),
        ({"mean": [3, 3]}, r"expected ascending ids, got 3 after 3$"),
        ({"mean": [0.5]}, r"expected a list of ids, got float64 of shape \(1,\)$"),
        (
            {"copied": [1]},
            r"^hot rows of table 'copied': the whole table is on every rank already; leave them out$",
        ),
        ({"pooled": [1]}, r"only a table that sends rows has hot ones, got send = 'pooled'$"),
    ],
)
def test_hot_rows_that_cannot_be_are_refused(hot, message):
    with pytest.raises(PlanError, match=message):
        made(TABLES, DIM, hot=hot)


def _other_hot_rows(rank, ranks):
    made(TABLES, DIM, hot={"split": [rank]})


def test_ranks_with_other_hot_rows_all_raise():
    for kind, message, _ in run_ranks(2, _other_hot_rows, check=False):
        assert kind == "CommError"
        assert "out of step" in message
