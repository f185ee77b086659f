"""What the bounded exchange promises while training: bounds, equal replicas, equal runs, true bookkeeping."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
import torch
import torch.distributed as dist

from laconic.adapt.policy import FixedPolicy
from laconic.codecs import BoundedRows
from laconic.exchange import SGD, RowwiseAdagrad, Table
from laconic.exchange.exchange_plan import ExchangePlan, TableCodecs
from laconic.lookups import Lookups
from tests.distributed import many_ranks, one_process
from tests.distributed.made import made
from tests.distributed.many_ranks import TABLES
from tests.distributed.ranks import run_ranks

DIM, BOUND = 8, 0.03
CODECS = TableCodecs(
    BoundedRows(BOUND, relative_to="range"), BoundedRows(0.5, relative_to="rms", rounding="unbiased")
)
PLAIN = [Table(name="split", rows=4000, sharding="row"), Table(name="whole", rows=500)]


def policy_for(tables, *, coded_ids=True):
    return FixedPolicy(ExchangePlan((CODECS,) * len(tables), coded_ids))


def _everything(rank, ranks):
    batches = many_ranks.random_batches(TABLES, [48] * 4 + [13], most=3, seed=1, dtype=torch.float32)

    def run(coded_ids):
        policy = policy_for(TABLES, coded_ids=coded_ids)
        return many_ranks.train(rank, ranks, TABLES, DIM, batches, RowwiseAdagrad(0.1), 0.1, policy=policy)

    return {
        "runs": [run(True), run(True), run(False)],
        "exact": many_ranks.train(rank, ranks, TABLES, DIM, batches, RowwiseAdagrad(0.1), 0.1),
        "bounds": _errors(rank, ranks),
        "ledger": _ledger(rank, ranks),
    }


def _errors(rank, ranks):
    """Largest error of every table, as a share of what its block allows, and whether any value had one."""
    tables = TABLES[:-1]  # what is summed from several ranks has no single bound
    embeddings = made(tables, DIM, policy=policy_for(tables), seed=3)
    generator = torch.Generator().manual_seed(rank)
    ids_TB = torch.stack([torch.randint(table.rows, (64,), generator=generator) for table in tables])
    lookups = Lookups.single(ids_TB)
    got_BTD = embeddings(lookups).detach().double()
    exact_BTD = embeddings.eval()(lookups).double()
    owner_TB, _ = embeddings.engines[0].layout.locate(
        np.repeat(np.arange(len(tables)), 64), lookups.ids_L.numpy()
    )
    owner_TB = torch.from_numpy(owner_TB.reshape(len(tables), 64))
    shares = {}
    for t, table in enumerate(tables):
        for source in range(ranks):
            block = owner_TB[t] == source
            if not block.any():
                continue
            rows = exact_BTD[block, t]
            error = (got_BTD[block, t] - rows).abs().max()
            allowed = BOUND * (rows.max() - rows.min())
            shares[table.name, source] = float(error / allowed)
    return shares


def _ledger(rank, ranks):
    """Bytes that the ledger names, and those that were handed to torch, by wire."""
    embeddings = made(PLAIN, DIM, policy=policy_for(PLAIN))
    sent: Counter[str] = Counter()
    exchanges = {"ids": embeddings.engines[0].ranks[0].ids, "rows": embeddings.engines[0].ranks[0].rows}
    transports = {name: exchange.transport for name, exchange in exchanges.items()}
    names = {tag: name for name, way in transports.items() for tag in (way._swapped, way._first, way._rest)}
    send = dist.ProcessGroup.send

    def counted(group, tensors, target, tag):
        sent[names[tag]] += sum(tensor.nbytes for tensor in tensors)
        return send(group, tensors, target, tag)

    dist.ProcessGroup.send = counted
    try:
        for step in range(4):
            generator = torch.Generator().manual_seed(10 * step + rank)
            ids_TB = torch.stack([torch.randint(table.rows, (256,), generator=generator) for table in PLAIN])
            embeddings(Lookups.single(ids_TB)).square().sum().backward()
            embeddings.optimizer.step()
    finally:
        dist.ProcessGroup.send = send
    accounts = embeddings.engines[0].ledger.accounts
    return {
        "ids": (accounts["ids"].sent, sent["ids"]),
        "rows": (accounts["forward"].sent + accounts["backward"].sent, sent["rows"]),
        "steps": [account.steps for account in accounts.values()],
        "tables": embeddings.engines[0].ledger.rows(),
        "totals": {name: (a.before, a.sent - a.sizes) for name, a in accounts.items()},
        "ratio": embeddings.report().ratio,
    }


@pytest.fixture(scope="module")
def results():
    return run_ranks(3, _everything)


def test_replicas_stay_equal_on_all_ranks(results):
    for run in range(3):
        copies = [result["runs"][run]["shards"]["copied"][1] for result in results]
        assert all(torch.equal(copy, copies[0]) for copy in copies)
        dense = [result["runs"][run]["dense"] for result in results]
        assert all(torch.equal(a, b) for other in dense for a, b in zip(other, dense[0], strict=True))


def assert_same_run(first, second):
    assert first["losses"] == second["losses"]
    for name, (_, rows) in first["shards"].items():
        assert torch.equal(rows, second["shards"][name][1]), name
    assert all(torch.equal(a, b) for a, b in zip(first["dense"], second["dense"], strict=True))


def test_two_runs_are_equal_bit_for_bit(results):
    for result in results:
        assert_same_run(result["runs"][0], result["runs"][1])


def test_ids_coded_or_not_train_the_same(results):
    for result in results:
        assert_same_run(result["runs"][0], result["runs"][2])


def test_the_bounded_exchange_is_not_the_exact_one(results):
    for result in results:
        bounded, exact = (run["shards"]["split"][1] for run in (result["runs"][0], result["exact"]))
        assert not torch.equal(bounded, exact)


def test_every_row_that_traveled_is_within_its_bound_and_none_other_changed(results):
    for rank, result in enumerate(results):
        for (name, source), share in result["bounds"].items():
            assert share <= 1, (name, source)
            assert (share == 0) == (source == rank or name == "copied"), (name, source)


def test_the_ledger_counts_the_bytes_that_were_sent(results):
    for result in results:
        ledger = result["ledger"]
        for wire_name in ("ids", "rows"):
            named, sent = ledger[wire_name]
            assert named == sent > 0
        assert ledger["steps"] == [4, 4, 4]
        for direction, (before, after) in ledger["totals"].items():
            rows = [row for row in ledger["tables"] if row["direction"] == direction]
            assert sum(row["before"] for row in rows) == before
            assert sum(row["after"] for row in rows) == after
            # the owner of a whole table asks nobody for it, and only the owner sends its rows
            assert all(row["after"] < row["before"] or row["before"] == 0 for row in rows)
        assert ledger["ratio"] > 1


def test_one_step_of_three_ranks_is_one_process_up_to_rounding():
    """In float32, with u = 2^-24 the error of one rounding.

    A logit is a sum of F products: each of two computations of it is off by at most F u S, S the sum of the
    products' magnitudes. The loss has the derivative (sigmoid(logit) - label) / B, so this moves it by
    at most F u S / 4B; a value of a row's gradient is this times 3 top (1 - tanh^2), at most 3 max|top|. The
    roundings of sigmoid, tanh, pooling, products and division are fewer than 32, each of at most u of values
    below 3 max|top| / B. A row sums K such contributions, with K more roundings of each. The update
    scales all that by the rate, and rounds the weight and the product once more.
    """
    tables, optimizer, u = many_ranks_tables(), SGD(0.1), 2.0**-24
    batches = many_ranks.random_batches(tables, [40], most=3, seed=9, dtype=torch.float32)
    weights = many_ranks.first_weights(tables, DIM, torch.float32)
    expected, _, _ = one_process.train([w.clone() for w in weights], tables, batches, optimizer, 0.1)
    results = run_ranks(3, many_ranks.train, tables, DIM, batches, optimizer, 0.1)
    label_B, _, lookups = batches[0]
    scorer = one_process.Scorer(len(tables), DIM, torch.float32)
    terms, top = len(scorer.top), scorer.top.abs().max().item()
    magnitudes = scorer.top.abs().sum().item()  # tanh is below one
    for t, (got, want, first) in enumerate(
        zip(many_ranks.whole_tables(results, tables), expected, weights, strict=True)
    ):
        ids = lookups.ids_L[lookups.offsets[t * 40] : lookups.offsets[(t + 1) * 40]]
        most = int(torch.bincount(ids).max())
        single = 3 * top / len(label_B) * (terms * magnitudes / 4 + 32 + most) * u
        allowed = 2 * (optimizer.lr * most * single + 2 * u * float(want.abs().max()))
        assert float((got - want.double()).abs().max()) <= allowed
        moved = (want - first).abs().max()
        assert allowed < 0.01 * float(moved)  # the bound means something


def many_ranks_tables():
    return [Table(name="split", rows=30, sharding="row"), *TABLES[1:]]
