"""Any number of ranks trains the model that one process trains."""

from __future__ import annotations

import pytest
import torch

from laconic.exchange import SGD, RowwiseAdagrad, Table
from tests.distributed import many_ranks, one_process
from tests.distributed.ranks import run_ranks

DIM, STEPS = 4, 8
SIZES = [24] * (STEPS - 1) + [7]  # the last batch is uneven

MIXED = [
    Table(name="whole", rows=50),
    Table(name="split", rows=41, sharding="row", pooling="mean"),
    Table(name="copied", rows=5, sharding="replicated"),
    Table(name="idle", rows=9),
    Table(name="pooled", rows=30, send="pooled"),
    Table(name="partial", rows=33, send="pooled", sharding="row", pooling="mean"),
]
ROWS = [Table(name=f"t{t}", rows=20 + t, sharding="row") for t in range(3)]
POOLED = [Table(name=f"t{t}", rows=20 + t, send="pooled") for t in range(3)]


def compare(ranks, tables, most, optimizer, **options):
    dtype = torch.float64
    idle = next((t for t, table in enumerate(tables) if table.name == "idle"), None)
    batches = many_ranks.random_batches(tables, SIZES, most=most, seed=ranks, dtype=dtype, idle=idle)
    if idle is not None and most == 1:
        idle = None
    weights = many_ranks.first_weights(tables, DIM, dtype)
    expected, model, losses = one_process.train([w.clone() for w in weights], tables, batches, optimizer, 0.1)
    results = run_ranks(ranks, many_ranks.train, tables, DIM, batches, optimizer, 0.1, *options.values())
    for got, want, start in zip(many_ranks.whole_tables(results, tables), expected, weights, strict=True):
        assert (got - want).abs().max() <= 1e-10 * want.abs().max()
        assert idle is not None or not torch.equal(want, start)
    for result in results:
        for got, want in zip(result["dense"], model.parameters(), strict=True):
            assert (got - want).abs().max() <= 1e-10 * want.abs().max()
    assert sum(r["losses"][0] for r in results) == pytest.approx(losses[0], rel=1e-10)


@pytest.mark.parametrize("ranks", [1, 3])
def test_many_ranks_equal_one_process_over_eight_steps(ranks):
    compare(ranks, MIXED, 3, RowwiseAdagrad(0.1))


@pytest.mark.parametrize("tables", [ROWS, POOLED], ids=["rows", "pooled"])
@pytest.mark.parametrize("optimizer", [SGD(0.1), RowwiseAdagrad(0.1)], ids=["sgd", "adagrad"])
def test_one_id_per_sample_needs_no_bags(tables, optimizer):
    compare(2, tables, 1, optimizer)


def test_an_empty_rank_weighs_nothing():
    compare(3, MIXED, 2, RowwiseAdagrad(0.1), prefetch=True, empty_rank=1)


def test_torchs_all_to_all_gives_the_same_bits():
    batches = many_ranks.random_batches(MIXED, [12, 12, 5], most=3, seed=1, dtype=torch.float64)
    both = [
        run_ranks(3, many_ranks.train, MIXED, DIM, batches, SGD(0.1), 0.1, True, None, None, pairwise)
        for pairwise in (True, False)
    ]
    for one, other in zip(*(many_ranks.whole_tables(results, MIXED) for results in both), strict=True):
        assert torch.equal(one, other)
