"""Copies of hot rows that are made equal every few steps: equal then, nothing lost, and the model learns."""

from __future__ import annotations

import pytest
import torch

from laconic.adapt.policy import FixedPolicy
from laconic.codecs import BoundedRows
from laconic.errors import ConfigError, PlanError
from laconic.exchange import SGD, RowwiseAdagrad, Table
from laconic.exchange.exchange_plan import ExchangePlan, TableCodecs
from laconic.lookups import Lookups
from tests.distributed import many_ranks
from tests.distributed.made import made
from tests.distributed.ranks import run_ranks

DIM, EVERY, STEPS = 4, 3, 8
TABLES = [
    Table(name="split", rows=60, sharding="row"),
    Table(name="idle", rows=9, sharding="row"),
    Table(name="whole", rows=20, pooling="mean"),
]
HOT = {"split": [0, 1, 2, 3, 9], "whole": range(20), "idle": [3]}
CODECS = TableCodecs(
    BoundedRows(0.03, relative_to="range"), BoundedRows(0.5, relative_to="rms", rounding="unbiased")
)


def embeddings_of(every, optimizer, dtype=torch.float64, **options):
    return made(TABLES, DIM, optimizer=optimizer, seed=5, dtype=dtype, hot=HOT, hot_every=every, **options)


def part_of_batch(rank, ranks, batch):
    samples = len(batch[0])
    first, last = rank * samples // ranks, (rank + 1) * samples // ranks
    return many_ranks.part_of(batch[2], first, last)


def tables_of(embeddings):
    embeddings.engines[0].synchronize()
    shards = {table.name: embeddings.engines[0].table_shard(table.name)[:2] for table in TABLES}
    return {name: (ids, rows.clone()) for name, (ids, rows) in shards.items()}


def sums(rank, ranks, every, optimizer):
    """Gradients that do not depend on rows: all that is learnt is their sum."""
    batches = many_ranks.random_batches(
        TABLES, [24] * (STEPS - 2) + [1, 7], most=3, seed=1, dtype=torch.float64, idle=1
    )
    embeddings, copies = embeddings_of(every, optimizer), []
    for batch in batches:
        embeddings(part_of_batch(rank, ranks, batch)).sum().backward()
        embeddings.optimizer.step()
        copies.append(torch.cat([embeddings.engines[0].hot_rows(table.name)[1] for table in TABLES]))
    refused = None
    try:
        embeddings.engines[0].table_shard("whole")
    except PlanError as error:
        refused = str(error)
    sent = {(row["table"], row["direction"]): row["after"] for row in embeddings.engines[0].ledger.rows()}
    return {"shards": tables_of(embeddings), "copies": copies, "refused": refused, "sent": sent}


def learn(rank, ranks, every):
    """Let rows become what their ids say, over coded messages; returns losses of all steps."""
    policy = FixedPolicy(ExchangePlan((CODECS,) * len(TABLES)))
    embeddings = embeddings_of(every, RowwiseAdagrad(0.1), torch.float32, policy=policy)
    generator, losses = torch.Generator().manual_seed(rank), []
    for _ in range(30):
        ids_TB = torch.stack([torch.randint(t.rows, (32,), generator=generator) for t in TABLES])
        pending = embeddings.start(Lookups.single(ids_TB))
        target_BTD = torch.cos(ids_TB.t()[..., None] * torch.arange(1, DIM + 1))
        loss = (pending.wait() - target_BTD).square().sum()
        (loss / pending.global_samples).backward()
        embeddings.optimizer.step()
        losses.append(float(loss.detach()) / 32)
    found = tables_of(embeddings)
    copies = [embeddings.engines[0].hot_rows(table.name)[1].clone() for table in TABLES]
    return losses, copies, found


def undone(rank, ranks):
    """Steps that are taken back leave nothing, in the middle of the steps between two synchronizations."""
    batches = many_ranks.random_batches(TABLES, [24] * 6, most=3, seed=2, dtype=torch.float64)

    def train(embeddings, some):
        for batch in some:
            embeddings(part_of_batch(rank, ranks, batch)).square().sum().backward()
            embeddings.optimizer.step()

    straight, tried = embeddings_of(EVERY, RowwiseAdagrad()), embeddings_of(EVERY, RowwiseAdagrad())
    train(straight, batches[:2])
    straight.synchronize()
    train(straight, batches[2:4])
    train(tried, batches[:2])
    tried.engines[0].begin_journal()
    train(tried, batches[3:])
    tried.engines[0].undo()
    tried.engines[0].end_journal()
    train(tried, batches[2:4])
    return tables_of(straight), tables_of(tried)


def _everything(rank, ranks):
    return {
        "sums": {
            (kind, every): sums(rank, ranks, every, optimizer)
            for kind, optimizer in (("sgd", SGD(0.1)), ("adagrad", RowwiseAdagrad(0.1)))
            for every in (1, EVERY)
        },
        "losses": {every: learn(rank, ranks, every) for every in (1, EVERY)},
        "undone": undone(rank, ranks),
    }


@pytest.fixture(scope="module")
def results():
    return run_ranks(3, _everything)


def test_nothing_is_lost(results):
    """SGD: the same sums, in another order."""
    exact, stale = (
        many_ranks.whole_tables([result["sums"]["sgd", every] for result in results], TABLES)
        for every in (1, EVERY)
    )
    for want, got in zip(exact, stale, strict=True):
        assert (got - want).abs().max() <= 1e-12


@pytest.mark.parametrize("kind", ["sgd", "adagrad"])
def test_copies_are_equal_after_each_synchronization_and_only_then(results, kind):
    for every in (1, EVERY):
        for step in range(1, STEPS + 1):
            copies = [result["sums"][kind, every]["copies"][step - 1] for result in results]
            equal = all(torch.equal(copy, copies[0]) for copy in copies)
            assert equal == (step % every == 0), (every, step)


def test_tables_are_not_read_while_copies_differ(results):
    for result in results:
        assert result["sums"]["sgd", 1]["refused"] is None
        assert result["sums"]["sgd", EVERY]["refused"] == (
            "embeddings: copies of hot rows differ between ranks; synchronize() on every rank before tables are read"
        )


def test_less_is_sent(results):
    for result in results:
        sent = [result["sums"]["sgd", every]["sent"] for every in (1, EVERY)]
        hot = [sum(size for (table, _), size in each.items() if "(hot)" in table) for each in sent]
        assert 0 < hot[1] < hot[0]
        assert all(sent[0][key] == sent[1][key] for key in sent[0] if "(hot)" not in key[0])


def test_the_model_learns_over_coded_messages(results):
    for result in results:
        for every, (losses, *_) in result["losses"].items():
            assert sum(losses[-5:]) < 0.5 * sum(losses[:5]), every
    for every in (1, EVERY):
        _, copies, _ = results[0]["losses"][every]
        for result in results[1:]:
            assert all(torch.equal(*pair) for pair in zip(result["losses"][every][1], copies, strict=True))


def test_steps_can_be_taken_back(results):
    for straight, tried in (result["undone"] for result in results):
        for name, (_, rows) in straight.items():
            assert torch.equal(rows, tried[name][1]), name


def test_one_rank_has_nothing_to_synchronize():
    alone = embeddings_of(EVERY, SGD(0.1))
    alone(Lookups.single(torch.zeros(3, 4, dtype=torch.int64))).sum().backward()
    assert alone.engines[0].pipeline.finish() == 3
    assert alone.engines[0].table_shard("whole")[1].shape == (20, DIM)


def test_no_steps_at_all_are_refused():
    with pytest.raises(ConfigError, match=r"^placement.hot_every: expected at least 1, got 0$"):
        embeddings_of(0, SGD())
