"""Batches that were prefetched: their weights, what they are for, and batches that are given up."""

from __future__ import annotations

import re

import pytest
import torch

from laconic.adapt.compression import Compression
from laconic.errors import ConfigError, PlanError
from laconic.exchange import SGD, Table
from laconic.exchange.ranks.world import LocalWorld
from laconic.lookups import Lookups
from laconic.nn import ShardedEmbeddings
from tests.reduce.threads import in_threads


def made(lr: float = 1.0, **options) -> ShardedEmbeddings:
    tables = [Table("t0", rows=10, dim=4, sharding="row"), Table("t1", rows=10, dim=4, sharding="row")]
    return ShardedEmbeddings(tables, Compression.exact(), optimizer=SGD(lr), **options)


def ids(*numbers: int) -> dict[str, torch.Tensor]:
    return {"t0": torch.tensor(numbers), "t1": torch.tensor(numbers)}


def train(embeddings: ShardedEmbeddings, batch: object) -> None:
    embeddings.start(batch).wait().sum().backward()
    embeddings.optimizer.step()


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("early", [True, False], ids=["fetched", "prefetched"])
@pytest.mark.parametrize("bags", [[0, 1, 2], [0, 0, 3]], ids=["single", "bags"])
def test_weights_of_a_prefetched_batch_are_those_at_its_start(ranks, early, bags):
    weights = {name: torch.nn.Parameter(torch.ones(bags[-1])) for name in ("t0", "t1")}
    offsets = torch.tensor(bags)
    columns = {name: (torch.arange(bags[-1]), offsets) for name in weights}
    later, embeddings = Lookups.bags(columns, weights=weights), made(lr=0.0, world=LocalWorld(ranks))
    with torch.no_grad():
        embeddings.prefetch(later) if not early else None
    pending = None if not early else embeddings.start(ids(1, 2))
    if pending is not None:
        embeddings.prefetch(later)
        pending.wait().sum().backward()
    assert later.weights_L is not None
    later.weights_L.data.copy_(torch.arange(len(later.weights_L)) + 2.0)
    found = embeddings.start(later).wait()
    embeddings.discard_prefetched()
    assert torch.equal(found, embeddings.start(later).wait())
    found.sum().backward()
    assert all(weight.grad is not None for weight in weights.values())


def test_a_batch_that_was_prefetched_in_evaluation_mode_is_not_a_training_step():
    embeddings = made()
    now, later = ids(1), ids(1)
    pending = embeddings.start(now)
    embeddings.eval()
    embeddings.prefetch(later)
    embeddings.train()
    pending.wait().sum().backward()
    embeddings.optimizer.step()
    assert embeddings.engines[0].step == 1
    text = "rows of this batch were prefetched to evaluate, not to train; discard_prefetched() first"
    with pytest.raises(PlanError, match=re.escape(text)):
        embeddings.start(later)
    embeddings.eval()
    assert torch.equal(embeddings.start(later).wait(), embeddings(now))


def test_rows_are_prefetched_again_once_a_batch_without_backward_is_discarded():
    embeddings = made()
    pipeline = embeddings.engines[0].pipeline
    abandoned = embeddings.start(ids(1)).wait()
    embeddings.discard_prefetched()
    pending, later = embeddings.start(ids(2)), ids(3)
    embeddings.prefetch(later)
    pending.wait().sum().backward()
    assert pipeline._fetched is not None
    text = "got one that was started before discard_prefetched() and given up"
    with pytest.raises(PlanError, match=re.escape(text)):
        abandoned.sum().backward()
    train(embeddings, later)


def test_batches_that_are_started_when_others_are_discarded_keep_their_backward():
    embeddings = made()
    first, second, later = embeddings.start(ids(1)), embeddings.start(ids(1)), ids(1)
    embeddings.prefetch(ids(4))
    embeddings.discard_prefetched()
    embeddings.prefetch(later)
    before = first.wait()
    before.sum().backward()
    second.wait().sum().backward()
    assert torch.equal(embeddings.start(later).wait(), before - 1 - 1)


@pytest.mark.parametrize("prefetch", [True, False])
def test_a_batch_that_is_no_lookups_on_one_rank_is_refused_on_all(prefetch):
    def run(world):
        embeddings = made(world=world)
        bad = {"t0": torch.tensor([[1]]), "t1": torch.tensor([1])} if world.rank else ids(1)
        if prefetch:
            embeddings.prefetch(bad)
        with pytest.raises(ConfigError) as caught:
            embeddings.start(bad).wait()
        train(embeddings, ids(1))
        return str(caught.value), embeddings.engines[0].step

    (first, step), (second, _) = in_threads(2, run)
    assert first == f"rank 1: {second}"
    assert second.startswith("lookups: expected")
    assert step == 1


def test_a_batch_that_is_no_lookups_is_refused_where_all_ranks_are_in_one_process():
    embeddings = made(world=LocalWorld(2))
    with pytest.raises(ConfigError, match="lookups: expected"):
        embeddings(7)
    train(embeddings, ids(1, 2))
