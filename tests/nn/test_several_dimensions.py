"""Tables of several dimensions in one module are what a module for each dimension would be."""

from __future__ import annotations

import copy
import re

import pytest
import torch

from laconic.adapt.compression import Compression
from laconic.codecs import Lossless
from laconic.errors import ConfigError, PlanError
from laconic.exchange import SGD, Table
from laconic.exchange.exchange_plan import ExchangePlan
from laconic.exchange.tables.placement import RowPlacement
from laconic.lookups import Lookups
from laconic.nn import ShardedEmbeddings
from tests.reduce.threads import in_threads

TABLES = [
    Table("user", 40, 8, sharding="row"),
    Table("country", 5, 2, sharding="replicated"),
    Table("item", 30, 8),
]


def batch(number: int, rank: int) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(10 * number + rank)
    return {table.name: torch.randint(0, table.rows, (6,), generator=generator) for table in TABLES}


def made(world=None, tables=TABLES, **options) -> ShardedEmbeddings:
    return ShardedEmbeddings(
        tables, options.pop("compression", None), optimizer=SGD(0.5), world=world, **options
    )


def copy_rows(source: ShardedEmbeddings, target: ShardedEmbeddings) -> None:
    """Let tables of the same name start alike."""
    engines = {table.name: engine for engine in source.engines for table in engine.layout.tables}
    for engine in target.engines:
        for table in engine.layout.tables:
            engine.table_shard(table.name)[1].copy_(engines[table.name].table_shard(table.name)[1])


def test_they_train_what_one_module_for_each_dimension_trains():
    def run(world):
        joined = made(world)
        parts = [made(world, [t for t in TABLES if t.dim == dim]) for dim in (8, 2)]
        for part in parts:
            copy_rows(joined, part)
        found = []
        for step in range(3):
            ids = batch(step, world.rank)
            rows = joined.start(ids)
            out = joined.split(rows.wait())
            pooled = [part.split(part(Lookups.of(ids))) for part in parts]
            expected = {**pooled[0], **pooled[1]}
            found += [torch.equal(out[name], expected[name]) for name in out]
            found.append(rows.global_samples == 12)
            for values in (out, expected):
                sum((k + 1) * values[table.name].square().sum() for k, table in enumerate(TABLES)).backward()
            for module in (joined, *parts):
                module.optimizer.step()
        sent = joined.report().bytes_sent
        return found, sent == sum(part.report().bytes_sent for part in parts), sent > 0

    for found, same_bytes, something in in_threads(2, run):
        assert all(found)
        assert same_bytes
        assert something


def test_shapes_are_torchs_where_dimensions_are_equal_and_joined_where_not():
    equal, several = made(tables=TABLES[::2]), made()
    ids = batch(0, 0)
    assert equal(ids).shape == (6, 2, 8)
    assert several(ids).shape == (6, 18)
    assert {name: tuple(rows.shape) for name, rows in several.split(several(ids)).items()} == {
        "user": (6, 8), "country": (6, 2), "item": (6, 8),
    }  # fmt: skip
    assert "3 tables, 75 rows, dim=2, 8, " in repr(several)


def test_lookups_without_names_are_in_the_order_of_all_tables():
    several = made()
    ids = batch(0, 0)
    assert torch.equal(several(ids), several(Lookups.single(torch.stack([ids[t.name] for t in TABLES]))))
    with pytest.raises(ConfigError, match="lookups: expected 3 tables, got 2"):
        several(Lookups.single(torch.zeros(2, 4, dtype=torch.int64)))


def test_a_batch_that_one_dimension_refuses_is_refused_by_all_and_the_next_may_follow():
    def run(world):
        several = made(world)
        wrong = batch(0, world.rank)
        if world.rank == 1:
            wrong["country"][3] = 5
        with pytest.raises(ConfigError, match="table 'country' has 5 rows, got id 5 in sample 3") as caught:
            several(wrong)
        several(batch(1, world.rank)).sum().backward()
        several.optimizer.step()
        return str(caught.value), [engine.pipeline.step for engine in several.engines]

    for message, steps in in_threads(2, run):
        assert "rank 1" in message or "table 'country'" in message
        assert steps == [1, 1]


def test_a_missing_table_is_named():
    ids = batch(0, 0)
    del ids["country"]
    with pytest.raises(ConfigError, match=re.escape("no ids of table 'country' (got: user, item)")):
        made()(ids)


def test_state_copies_and_exceptions_reach_every_dimension():
    compression = Compression(tables={"country": None, "item": Lossless()})
    first = made(compression=compression)
    first(batch(0, 0)).sum().backward()
    second = made(seed=7)
    second.load_state_dict(first.state_dict())
    for other in (second, copy.deepcopy(first)):
        assert torch.equal(other(batch(1, 0)), first(batch(1, 0)))
    with pytest.raises(ConfigError, match="expected rows of 1 dimensions, got 2; tables differ"):
        made(tables=TABLES[:1]).load_state_dict(first.state_dict())
    plans = [engine.policy.plan_for(0).tables for engine in first.engines]
    assert [codecs.forward for codecs in plans[0]] == [Compression().rows, Lossless()]
    assert plans[1][0].forward is None


def test_no_two_tables_of_the_same_size_start_alike():
    several = made(tables=[Table("a", 9, 4), Table("b", 9, 2)])
    a, b = (engine.weight_RD.flatten() for engine in several.engines)
    assert not torch.equal(a[:18], b)


def test_hot_rows_of_unknown_tables_are_refused():
    with pytest.raises(PlanError, match="'nobody'"):
        made(placement=RowPlacement(hot={"nobody": [1], "user": [0]}))


@pytest.mark.parametrize("tables", [1, 4])
def test_a_plan_for_other_numbers_of_tables_is_refused(tables):
    class Plans:
        def plan_for(self, step: int) -> ExchangePlan:
            return ExchangePlan.exact(tables)

    made = [Table("user", 5, 4), Table("item", 5, 8)]
    with pytest.raises(PlanError, match=f"embeddings: expected a plan for 2 tables, got one for {tables}"):
        ShardedEmbeddings(made, Plans()).start({"user": torch.tensor([1]), "item": torch.tensor([1])})
