"""Rows that travel a step early change no bit of the model, and are most of those that travel."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from laconic import Lossless
from laconic.adapt.policy import FixedPolicy
from laconic.codecs import BoundedRows
from laconic.errors import CommError
from laconic.exchange import SGD, RowwiseAdagrad
from laconic.exchange.exchange_plan import ExchangePlan, TableCodecs
from laconic.exchange.prefetched import bits_of, bytes_of_bits, count_blocks, without
from laconic.exchange.routing import Part
from laconic.exchange.rows import RowExchange
from tests.distributed import many_ranks
from tests.distributed.made import made
from tests.distributed.many_ranks import TABLES
from tests.distributed.ranks import run_ranks

DIM = 8
HOT = {"split": np.arange(0, 300, 7), "whole": np.array([1, 3])}
LOSSLESS = ExchangePlan((TableCodecs(Lossless(), Lossless()),) * len(TABLES))
SIZES = [48] * 4 + [2, 13]  # a batch that leaves ranks without samples, and an uneven last one


def _trained(rank, ranks, way, look_ahead):
    most = 3 if way["bags"] else 1
    batches = many_ranks.random_batches(TABLES, SIZES, most=most, seed=1, dtype=torch.float32)
    return many_ranks.train(
        rank, ranks, TABLES, DIM, batches, way["optimizer"], 0.1, look_ahead=look_ahead, **way["how"]
    )


def _both(rank, ranks, ways):
    """Train each way with and without; count what came early."""
    found = []
    for way in ways:
        plain = _trained(rank, ranks, way, False)
        early = []
        ask = RowExchange.prefetch

        def watched(self, *args, ask=ask, early=early):
            early.append((yield from ask(self, *args)))
            return early[-1]

        RowExchange.prefetch = watched
        try:
            ahead = _trained(rank, ranks, way, True)
        finally:
            RowExchange.prefetch = ask
        came = [int(part.came_NT.sum()) for part in early if part is not None]
        asked = [len(part.came_R) for part in early if part is not None]
        found.append((plain, ahead, sum(came), sum(asked)))
    return found


WAYS = [
    {"optimizer": SGD(0.1), "bags": True, "how": {}},
    {"optimizer": RowwiseAdagrad(0.1), "bags": False, "how": {"hot": HOT}},
    {"optimizer": RowwiseAdagrad(0.1), "bags": True, "how": {"hot": HOT, "hot_every": 3}},
    {"optimizer": RowwiseAdagrad(0.1), "bags": True, "how": {"policy": FixedPolicy(LOSSLESS)}},
    {"optimizer": SGD(0.1), "bags": True, "how": {"empty_rank": 1}},
]


def test_no_bit_differs():
    for found in run_ranks(3, _both, WAYS):
        for way, (plain, ahead, came, asked) in zip(WAYS, found, strict=True):
            assert ahead["losses"] == plain["losses"], way
            for table, (ids, rows) in plain["shards"].items():
                assert ahead["shards"][table][0] == ids
                assert torch.equal(ahead["shards"][table][1], rows), (way, table)
            for table, copies in plain["copies"].items():
                assert all(torch.equal(*pair) for pair in zip(ahead["copies"][table], copies, strict=True))
            assert all(torch.equal(*pair) for pair in zip(ahead["dense"], plain["dense"], strict=True))
            assert 0 < came < asked or asked == 0, way
    assert any(came for _, _, came, _ in found)


def _bounded(rank, ranks):
    """Rows that are rounded do not travel early; of the others some do."""
    rounded = TableCodecs(BoundedRows(0.01, relative_to="range"), None)
    plans = {"all": [rounded] * len(TABLES), "one": [rounded, *[TableCodecs()] * (len(TABLES) - 1)]}
    found = {}
    for name, codecs in plans.items():
        policy = FixedPolicy(ExchangePlan(tuple(codecs)))
        way = {"optimizer": SGD(0.1), "bags": True, "how": {"policy": policy}}
        (_, ahead, came, _), *_ = _both(rank, ranks, [way])
        found[name] = came, ahead["losses"]
    return found


def test_what_is_rounded_does_not_travel_early():
    results = run_ranks(2, _bounded)
    for found in results:
        assert found["all"][0] == 0
        assert all(np.isfinite(losses).all() for _, losses in found.values())
    assert sum(found["one"][0] for found in results) > 0  # the owner of a whole table gets none itself


def _discarded(rank, ranks):
    """Evaluate in between: what was prefetched is forgotten, and nothing is out of step."""
    batches = many_ranks.random_batches(TABLES, [16] * 3, most=2, seed=3, dtype=torch.float32)
    mine = [many_ranks.part_of(b[2], rank * 16 // ranks, (rank + 1) * 16 // ranks) for b in batches]
    ends = []
    for look_ahead in (False, True):
        embeddings = made(TABLES, DIM, optimizer=SGD(0.5), seed=1, look_ahead=look_ahead)
        for step, lookups in enumerate(mine):
            pending = embeddings.start(lookups)
            if step + 1 < len(mine):
                embeddings.prefetch(mine[step + 1])
            pending.wait().square().sum().backward()
            embeddings.optimizer.step()
            embeddings.discard_prefetched()
            embeddings.eval()
            embeddings(mine[0])
            embeddings.train()
        ends.append(embeddings.engines[0].weight_RD.clone())
    return torch.equal(*ends)


def test_early_rows_may_be_forgotten():
    assert run_ranks(2, _discarded) == [True, True]


def _lies(rank, ranks):
    """Rank 1 says that other rows came than came."""
    import laconic.exchange.rows as module

    honest = module.bytes_of_bits
    if rank == 1:
        module.bytes_of_bits = lambda bits, counts: honest(np.zeros_like(bits), counts)
    batches = many_ranks.random_batches(TABLES, [16] * 2, most=2, seed=3, dtype=torch.float32)
    mine = [many_ranks.part_of(b[2], rank * 8, rank * 8 + 8) for b in batches]
    embeddings = made(TABLES, DIM, optimizer=SGD(0.5), look_ahead=True)
    pending = embeddings.start(mine[0])
    embeddings.prefetch(mine[1])
    pending.wait().square().sum().backward()
    with pytest.raises(CommError, match=("others than their bits say", "lost a peer")[rank]):
        embeddings.optimizer.step()
    return True


def test_wrong_bits_are_an_error():
    assert run_ranks(2, _lies) == [True, True]


def test_bits_find_their_way():
    rng = np.random.default_rng(0)
    counts = np.array([0, 3, 8, 0, 17])
    bits = rng.random(28) < 0.5
    data, sizes = bytes_of_bits(bits, counts)
    assert sizes.tolist() == [0, 1, 1, 0, 3]
    np.testing.assert_array_equal(bits_of(data, counts), bits)
    blocks = np.array([[0, 5, 2], [3, 0, 18]])
    expected = [piece.sum() for piece in np.split(bits, np.cumsum(blocks)[:-1])]
    assert count_blocks(bits, blocks).ravel().tolist() == expected


def test_what_is_left_out_takes_its_rows_along():
    part = Part(np.array([7, 8, 9, 4]), np.array([0, 2, 2, 3, 4]), 4)
    rest = without(part, np.array([True, False, False, True]))
    assert (rest.index.tolist(), rest.offsets.tolist(), rest.rows) == ([9], [0, 0, 1], 2)
    plain = without(Part(np.array([7, 8, 9]), None, 3), np.array([False, True, False]))
    assert (plain.index.tolist(), plain.offsets, plain.rows) == ([7, 9], None, 2)
