"""A batch that cannot be looked up is refused by every rank, and the next one finds all of them in step."""

from __future__ import annotations

import pytest
import torch

from laconic.errors import ConfigError
from laconic.exchange import Table
from laconic.lookups import Lookups
from laconic.nn import ShardedEmbeddings
from tests.distributed.made import made
from tests.reduce.threads import in_threads

TABLES = [Table(name="a", rows=6, sharding="row"), Table(name="b", rows=5)]
TOO_LARGE = "lookups: table 'a' has 6 rows, got id 6 in sample 1; map unknown ids to a row of their own"


def batch(*ids: int) -> Lookups:
    return Lookups.single(torch.tensor([ids, (0,) * len(ids)]))


def train(embeddings: ShardedEmbeddings, lookups: Lookups) -> None:
    pending = embeddings.start(lookups)
    pending.wait().sum().div(pending.global_samples).backward()
    embeddings.optimizer.step()


def refusal_of(embeddings: ShardedEmbeddings, lookups: Lookups) -> str:
    with pytest.raises(ConfigError) as caught:
        train(embeddings, lookups)
    return str(caught.value)


@pytest.mark.parametrize(
    ("refused", "message"),
    [
        (batch(0, 6), "table 'a' has 6 rows, got id 6 in sample 1; map"),
        (batch(-1), "table 'a' has 6 rows, got id -1 in sample 0; map"),
        (Lookups.single(torch.tensor([[1]])), "expected 2 tables, got 1"),
        (Lookups(torch.tensor([1]), torch.tensor([0, 0, 2]), 2), "expected offsets that rise from 0 to 1"),
    ],
    ids=["out of range", "negative", "too few tables", "offsets"],
)
def test_a_bad_batch_does_not_poison_later_ones(refused, message):
    spoiled, whole = made(TABLES, 3, seed=1), made(TABLES, 3, seed=1)
    train(spoiled, batch(0, 1))
    assert message in refusal_of(spoiled, refused)
    assert spoiled.engines[0].step == 1
    train(spoiled, batch(2, 1))
    for good in (batch(0, 1), batch(2, 1)):
        train(whole, good)
    assert torch.equal(spoiled.engines[0].weight_RD, whole.engines[0].weight_RD)
    assert spoiled.engines[0].step == whole.engines[0].step == 2


def test_a_bad_batch_in_evaluation_does_not_poison_training():
    embeddings = made(TABLES, 3)
    embeddings.eval()
    with pytest.raises(ConfigError, match="got id 6"):
        embeddings(batch(6))
    train(embeddings.train(), batch(5))


@pytest.mark.parametrize("look_ahead", [False, True], ids=["", "look ahead"])
def test_every_rank_refuses_what_one_cannot_look_up_and_all_go_on(look_ahead):
    def run(world):
        embeddings = made(TABLES, 3, seed=1, world=world, look_ahead=look_ahead)
        first, bad, last = batch(0, 1), batch(0, 6 if world.rank == 1 else 2), batch(world.rank, 3)
        pending = embeddings.start(first)
        embeddings.prefetch(bad)
        pending.wait().sum().backward()
        pending = embeddings.start(bad)
        embeddings.prefetch(last)
        with pytest.raises(ConfigError) as caught:
            pending.wait()
        with pytest.raises(ConfigError):
            _ = pending.global_samples
        train(embeddings, last)
        state = embeddings.engines[0].weight_RD.clone(), embeddings.engines[0].step
        embeddings.close()
        return str(caught.value), *state

    def without(world):
        embeddings = made(TABLES, 3, seed=1, world=world)
        embeddings(batch(0, 1)).sum().backward()
        train(embeddings, batch(world.rank, 3))
        embeddings.close()
        return embeddings.engines[0].weight_RD

    refused, expected = in_threads(3, run), in_threads(3, without)
    assert [text for text, *_ in refused] == [f"rank 1: {TOO_LARGE}", TOO_LARGE, f"rank 1: {TOO_LARGE}"]
    for (_, weight, step), other in zip(refused, expected, strict=True):
        assert torch.equal(weight, other)
        assert step == 2
