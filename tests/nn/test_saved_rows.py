"""States of embeddings: all ranks of a process, steps that were begun, states that do not fit."""

from __future__ import annotations

import copy
import re

import pytest
import torch

from laconic.adapt.compression import Compression
from laconic.errors import ConfigError, PlanError
from laconic.exchange import SGD, Table
from laconic.exchange.ranks.world import LocalWorld
from laconic.exchange.tables.placement import RowPlacement
from laconic.nn import ShardedEmbeddings

TABLES = [Table("t0", rows=10, dim=4, sharding="row")]


def made(tables=TABLES, **options) -> ShardedEmbeddings:
    return ShardedEmbeddings(tables, Compression.exact(), optimizer=SGD(1.0), **options)


def all_rows(embeddings: ShardedEmbeddings) -> torch.Tensor:
    return embeddings.engines[0].table_shard("t0")[1].clone()


def train(embeddings: ShardedEmbeddings, ids: torch.Tensor) -> None:
    embeddings({"t0": ids}).sum().backward()
    embeddings.optimizer.step()


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_a_state_has_the_rows_of_all_ranks_of_a_process(ranks):
    embeddings = made(world=LocalWorld(ranks))
    first, saved = all_rows(embeddings), copy.deepcopy(embeddings.state_dict())
    train(embeddings, torch.arange(10))
    assert torch.equal(all_rows(copy.deepcopy(embeddings)), all_rows(embeddings))
    assert not torch.equal(all_rows(embeddings), first)
    embeddings.load_state_dict(saved)
    assert torch.equal(all_rows(embeddings), first)
    assert embeddings.engines[0].step == 0


def test_a_state_of_other_numbers_of_ranks_in_a_process_is_refused():
    with pytest.raises(
        ConfigError, match=re.escape("expected the rows of 2 ranks of one process, got those of 1")
    ):
        made(world=LocalWorld(2)).load_state_dict(made().state_dict())
    with pytest.raises(
        ConfigError, match=re.escape("expected the rows of 1 ranks of one process, got those of 2")
    ):
        made().load_state_dict(made(world=LocalWorld(2)).state_dict())
    replicated = [Table("t0", rows=10, dim=4, sharding="replicated")]
    made(replicated, world=LocalWorld(2)).load_state_dict(made(replicated).state_dict())


def test_sharing_memory_leaves_rows_where_updates_find_them():
    embeddings = made()
    embeddings.share_memory()
    before = embeddings.state_dict()["_extra_state"]["weight"].clone()
    train(embeddings, torch.tensor([1]))
    assert not torch.equal(embeddings.state_dict()["_extra_state"]["weight"], before)


def test_a_prefetched_batch_is_not_counted_in_a_state_and_no_state_is_loaded_over_it():
    embeddings = made()
    saved = copy.deepcopy(embeddings.state_dict())
    now, later = {"t0": torch.tensor([1])}, {"t0": torch.tensor([1])}
    pending = embeddings.start(now)
    embeddings.prefetch(later)
    pending.wait().sum().backward()
    embeddings.optimizer.step()
    assert embeddings.state_dict()["_extra_state"]["step"] == 1
    with pytest.raises(
        PlanError, match=re.escape("a batch was prefetched; start it, or discard_prefetched(), first")
    ):
        embeddings.load_state_dict(saved)
    embeddings.discard_prefetched()
    embeddings.load_state_dict(saved)


def test_copies_that_differed_are_forgotten_when_a_state_is_loaded():
    placement = RowPlacement(hot={"t0": [0, 1]}, hot_every=4)
    embeddings = made(placement=placement, world=LocalWorld(2))
    first, saved = all_rows(embeddings), copy.deepcopy(embeddings.state_dict())
    for _ in range(2):
        train(embeddings, torch.tensor([0, 2, 0, 1]))
    embeddings.load_state_dict(saved)
    embeddings.synchronize()
    assert torch.equal(all_rows(embeddings), first)


def test_a_state_of_other_tables_is_refused():
    def two(*names):
        return made([Table(name, rows=10, dim=4, sharding="row") for name in names])

    text = (
        "embeddings: expected rows of table 'b' (10 rows, sharding 'row', owner None), got those of 'a' (10 rows, "
        "sharding 'row', owner None); make the same tables in the same order"
    )
    with pytest.raises(ConfigError, match=re.escape(text)):
        two("b", "a").load_state_dict(two("a", "b").state_dict())
    with pytest.raises(ConfigError, match=re.escape("expected rows of 1 tables, got those of 2")):
        made([Table("a", rows=20, dim=4, sharding="row")]).load_state_dict(two("a", "b").state_dict())


def test_a_state_without_rows_is_refused():
    with pytest.raises(
        ConfigError, match=re.escape("expected a state with step, weight and state, got 'step'; load")
    ):
        made().set_extra_state({"step": 3})
