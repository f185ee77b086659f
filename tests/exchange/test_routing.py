"""Requests and services fit together: every lookup gets its row, every gradient its owner."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from laconic import kernels
from laconic.errors import CommError, ConfigError, PlanError
from laconic.exchange import Layout, Table
from laconic.exchange.ids import lists_for
from laconic.exchange.routing import IdLists, Request, Service
from laconic.exchange.tables.copies import HotRows
from laconic.lookups import Lookups

DIM = 3


@st.composite
def tables(draw):
    count = draw(st.integers(1, 5))
    made = []
    for t in range(count):
        sharding = draw(st.sampled_from(["table", "row", "replicated"]))
        send = "rows" if sharding == "replicated" else draw(st.sampled_from(["rows", "pooled"]))
        pooling = draw(st.sampled_from(["sum", "mean"]))
        made.append(
            Table(name=f"t{t}", rows=draw(st.integers(1, 20)), sharding=sharding, send=send, pooling=pooling)
        )
    return tuple(made)


def random_lookups(made, samples, most, generator):
    ids, lengths = [], []
    for table in made:
        count = (
            generator.integers(min(most, 1), most + 1, samples)
            if most == 1
            else generator.integers(0, most + 1, samples)
        )
        lengths.append(count)
        ids.append(generator.integers(0, table.rows, int(count.sum())))
    offsets = np.concatenate([[0], np.cumsum(np.concatenate(lengths))]).astype(np.int64)
    return Lookups(torch.from_numpy(np.concatenate(ids)), torch.from_numpy(offsets), len(made))


def shard(layout, whole):
    parts = [whole[t][layout.shard_ids(t, layout.rank)] for t in range(len(layout.tables))]
    return np.concatenate(parts)


def serve(requests, layouts, rank):
    pieces = [lists_for(request.lists, rank) for request in requests]
    lists = IdLists(
        np.stack([request.lists.counts_NT[rank] for request in requests]),
        np.concatenate([piece[0] for piece in pieces]),
        np.stack([request.lists.length_counts_NT[rank] for request in requests]),
        np.concatenate([piece[1] for piece in pieces]),
    )
    return Service.of(lists, np.array([request.samples for request in requests]), layouts[rank])


def rows_of(part, weight):
    out = np.empty((part.rows, DIM))
    kernels.active().sum_bags(out, weight, part.index, part.offsets)
    return out


def expected(made, whole, lookups):
    out = np.zeros((lookups.samples, len(made), DIM))
    offsets = lookups.offsets.numpy()
    for t, table in enumerate(made):
        for b in range(lookups.samples):
            cell = t * lookups.samples + b
            bag = whole[t][lookups.ids_L.numpy()[offsets[cell] : offsets[cell + 1]]]
            out[b, t] = bag.sum(0) / (max(len(bag), 1) if table.pooling == "mean" else 1)
    return out


@settings(max_examples=50, deadline=None)
@given(
    tables(),
    st.integers(1, 4),
    st.lists(st.integers(0, 6), min_size=4, max_size=4),
    st.integers(1, 3),
    st.integers(0, 99),
)
def test_every_lookup_gets_its_row_and_every_gradient_its_owner(made, ranks, samples, most, seed):
    generator = np.random.default_rng(seed)
    whole = [generator.standard_normal((table.rows, DIM)) for table in made]
    layouts = [Layout(made, ranks, rank) for rank in range(ranks)]
    lookups = [random_lookups(made, samples[rank], most, generator) for rank in range(ranks)]
    requests = [Request.of(lookups[rank], layouts[rank], HotRows(made)) for rank in range(ranks)]
    services = [serve(requests, layouts, rank) for rank in range(ranks)]
    gradients = [np.zeros_like(table) for table in whole]
    for rank, request in enumerate(requests):
        others = [r for r in range(ranks) if r != rank]
        blocks = []
        for owner in [*others, rank]:
            service, weight = services[owner], shard(layouts[owner], whole)
            if owner == rank:
                blocks.append(rows_of(service.own, weight))
                continue
            sent = rows_of(service.remote, weight)
            before = sum(int(service.answers_NT[r].sum()) for r in range(rank) if r != owner)
            blocks.append(sent[before : before + int(service.answers_NT[rank].sum())])
            assert (service.answers_NT[rank] == request.answers_NT[owner]).all()
            assert (service.gradients_NT[rank] == request.gradients_NT[owner]).all()
        received = np.concatenate(blocks)
        bags = request.bags
        out = np.empty((request.samples * len(made), DIM))
        kernels.active().sum_bags(out, received, bags.index, bags.offsets)
        if bags.offsets is None:
            out = out.reshape(request.samples, len(made), DIM)
        else:
            out = out.reshape(len(made), request.samples, DIM).transpose(1, 0, 2)
        if bags.scale_TB is not None:
            out = out * bags.scale_TB.T[..., None]
        np.testing.assert_allclose(out, expected(made, whole, lookups[rank]), atol=1e-12)
    for rank, service in enumerate(services):  # every id of every rank names its row once, in rank order
        part_C = service.list_C % len(made)
        sums_C, _ = layouts[rank].sums_of(part_C, service.id_C)
        counted_C = ~layouts[rank].summed_T[part_C] | (sums_C == rank)  # a rank lists its own all
        named = np.bincount(service.rows_C[counted_C], minlength=layouts[rank].local_rows)
        for t in range(len(made)):
            base = int(layouts[rank].base_T[t])
            part = named[base : int(layouts[rank].base_T[t + 1])]
            gradients[t][layouts[rank].shard_ids(t, rank)] += part[:, None]
    for t, table in enumerate(made):
        for rank in range(ranks):
            span = (
                lookups[rank].offsets.numpy()[[t * samples[rank], (t + 1) * samples[rank]]]
                if samples[rank]
                else [0, 0]
            )
            ids = lookups[rank].ids_L.numpy()[span[0] : span[1]]
            if table.send == "rows":
                ids = np.unique(ids)
            copies = 2 if table.sharding == "replicated" and ranks == 2 else 1
            np.subtract.at(gradients[t], ids, copies)
        assert not gradients[t].any()


@pytest.mark.parametrize("ranks", [1, 2, 3, 5])
def test_shards_hold_every_row_once(ranks):
    made = (
        Table(name="a", rows=7, sharding="row"),
        Table(name="b", rows=4),
        Table(name="c", rows=2, sharding="row"),
    )
    seen = [np.zeros(table.rows, int) for table in made]
    for rank in range(ranks):
        layout = Layout(made, ranks, rank)
        for t in range(len(made)):
            ids = np.arange(made[t].rows)[layout.shard_ids(t, rank)]
            assert len(ids) == layout.shard_rows(rank)[t]
            seen[t][ids] += 1
    assert all((count == 1).all() for count in seen)


def test_hot_rows_of_many_tables_are_spread():
    made = tuple(Table(name=f"t{t}", rows=100, sharding="row") for t in range(4))
    layout = Layout(made, 4, 0)
    ranks, _ = layout.locate(np.arange(4), np.zeros(4, np.int64))
    assert sorted(ranks) == [0, 1, 2, 3]


def test_whole_tables_are_spread_by_lookups_then_memory():
    made = tuple(Table(name=f"t{t}", rows=10 * (t + 1)) for t in range(5))
    owners = Layout(made, 2, 0).first_T
    assert sorted(np.bincount(owners)) == [2, 3]


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        ([0, 9, 1], "table 'b' has 2 rows, got id 9 in sample 0; map unknown ids"),
        ([-1, 0, 1], "table 'a' has 3 rows, got id -1 in sample 0"),
    ],
)
def test_an_id_out_of_range_is_named_with_its_table(ids, message):
    layout = Layout((Table(name="a", rows=3), Table(name="b", rows=2)), 1, 0)
    lookups = Lookups(torch.tensor(ids), torch.tensor([0, 1, 3]), 2)
    with pytest.raises(ConfigError, match=message):
        Request.of(lookups, layout, HotRows(layout.tables))


def test_offsets_that_do_not_fit_are_refused():
    layout = Layout((Table(name="a", rows=3),), 1, 0)
    with pytest.raises(ConfigError, match=r"offsets that rise from 0 to 2 for 1 tables, got 2 from 0 to 1"):
        Request.of(Lookups(torch.tensor([0, 1]), torch.tensor([0, 1]), 1), layout, HotRows(layout.tables))
    with pytest.raises(ConfigError, match="expected 1 tables, got 2"):
        Request.of(Lookups(torch.tensor([0, 1]), torch.tensor([0, 1, 2]), 2), layout, HotRows(layout.tables))


def test_a_peer_that_asks_for_rows_that_are_not_there_is_named():
    layout = Layout((Table(name="a", rows=3),), 1, 0)
    lists = IdLists(np.array([[1]]), np.array([7]), np.zeros((1, 1), np.int64), np.empty(0, np.int64))
    with pytest.raises(CommError, match="rank 0 asks rank 0 for row 7 of its 3 rows of table 'a'"):
        Service.of(lists, np.array([1]), layout)


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (lambda: Table(name="a", rows=0), "expected 1 to 2"),
        (lambda: Table(name="a", rows=1, sharding="rwo"), "no such sharding 'rwo'"),
        (lambda: Table(name="a", rows=1, sharding="row", owner=0), "only a whole table has an owner"),
        (
            lambda: Table(name="a", rows=1, sharding="replicated", send="pooled"),
            "a replicated table sends no rows",
        ),
        (lambda: Layout((), 1, 0), "at least one table"),
        (lambda: Layout((Table(name="a", rows=1), Table(name="a", rows=2)), 1, 0), "got 'a' twice"),
    ],
)
def test_tables_that_cannot_be_are_refused(made, message):
    with pytest.raises(ConfigError, match=message):
        made()


def test_an_owner_that_does_not_exist_is_refused():
    with pytest.raises(PlanError, match="owner 3 is not one of 2 ranks"):
        Layout((Table(name="a", rows=1, owner=3),), 2, 0)
