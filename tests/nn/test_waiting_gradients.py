"""Gradients that wait for a step: accumulation, clipping, and what forgets them."""

from __future__ import annotations

import math
import re

import pytest
import torch

from laconic.adapt.compression import Compression
from laconic.errors import ConfigError
from laconic.exchange import SGD, RowwiseAdagrad, Table
from laconic.exchange.tables.placement import RowPlacement
from laconic.lookups import Lookups
from laconic.nn import ShardedEmbeddings
from tests.distributed.made import made_local
from tests.reduce.threads import in_threads

TABLES = [
    Table("split", 9, 4, sharding="row"),
    Table("whole", 7, 4),
    Table("copied", 5, 4, sharding="replicated"),
    Table("pooled", 6, 4, send="pooled"),
]
EXACT = Compression.exact()


def batch(number: int, rank: int, samples: int = 5) -> Lookups:
    generator = torch.Generator().manual_seed(10 * number + rank)
    return Lookups.single(torch.randint(0, 5, (len(TABLES), samples), generator=generator))


def made(world, **options) -> ShardedEmbeddings:
    return ShardedEmbeddings(TABLES, options.pop("compression", EXACT), seed=1, world=world, **options)


def rows_of(embeddings: ShardedEmbeddings) -> dict[str, torch.Tensor]:
    (engine,) = embeddings.engines
    return {table.name: engine.table_shard(table.name)[1].clone() for table in TABLES}


def whole(ranks: list[dict[str, torch.Tensor]], first: list[dict[str, torch.Tensor]]) -> float:
    """Sum of squares of what all ranks changed; replicas, which are equal, once."""
    changes = [
        (now[name] - before[name]).double().square().sum()
        for rank, (now, before) in enumerate(zip(ranks, first, strict=True))
        for name in now
        if name != "copied" or rank == 0
    ]
    return float(torch.stack(changes).sum())


@pytest.mark.parametrize("optimizer", [SGD(0.5), RowwiseAdagrad(0.1)], ids=["sgd", "adagrad"])
@pytest.mark.parametrize("compression", [EXACT, Compression()], ids=["exact", "compressed"])
def test_one_backward_and_a_step_is_a_fused_backward_bit_for_bit(optimizer, compression):
    def run(world):
        found = []
        for fused in (True, False):
            placement = RowPlacement(hot={"split": [0, 2]})
            kind = {"optimizer": optimizer, "compression": compression, "placement": placement}
            embeddings = made(world, fused=fused, **kind)
            for step in range(3):
                pending = embeddings.start(batch(step, world.rank))
                if step < 2 and not fused:
                    embeddings.prefetch(following := batch(step + 1, world.rank))
                    embeddings.discard_prefetched()
                    del following
                pending.wait().square().sum().backward()
                embeddings.optimizer.step()
            found.append(rows_of(embeddings))
        return found

    for fused, waited in in_threads(3, run):
        assert all(torch.equal(fused[name], waited[name]) for name in fused)


def test_several_backward_passes_are_one_update_by_their_sum():
    def run(world):
        both, joined = (made(world, fused=False, optimizer=RowwiseAdagrad(0.1)) for _ in range(2))
        first, parts = rows_of(both), [batch(step, world.rank) for step in range(2)]
        for part in parts:
            both(part).sum().backward()
        before = rows_of(both)
        both.optimizer.step()
        joined(Lookups.joined(parts)).sum().backward()
        joined.optimizer.step()
        return first, before, rows_of(both), rows_of(joined)

    for first, before, both, joined in in_threads(2, run):
        for name in both:
            assert torch.equal(first[name], before[name]), name  # nothing changes before the step
            # gradients are small whole numbers here, whose sums are exact in any order
            assert torch.equal(both[name], joined[name]), name
            assert not len(both[name]) or not torch.equal(both[name], before[name]), name


def test_rows_that_were_prefetched_are_those_after_the_step():
    def run(world):
        ahead, plain = made(world, fused=False), made(world, fused=False)
        one, two = batch(0, world.rank), batch(1, world.rank)
        ahead.prefetch(one)
        ahead.prefetch(two)
        outputs = []
        for embeddings in (ahead, plain):
            embeddings(one).sum().backward()
            embeddings.optimizer.step()
            outputs.append(embeddings(two).detach().clone())
        return outputs

    for ahead, plain in in_threads(2, run):
        assert torch.equal(ahead, plain)


def test_gradients_that_are_forgotten_change_nothing():
    def run(world):
        embeddings = made(world, fused=False)
        before = rows_of(embeddings)
        embeddings(batch(0, world.rank)).sum().backward()
        embeddings.optimizer.zero_grad()
        embeddings.optimizer.step()
        return before, rows_of(embeddings)

    for before, after in in_threads(2, run):
        assert all(torch.equal(before[name], after[name]) for name in before)


@pytest.mark.parametrize("ranks", [1, 3])
def test_the_norm_counts_rows_of_all_ranks_and_dense_parameters_once(ranks):
    def run(world):
        embeddings = made(world, fused=False, optimizer=SGD(1.0))
        before = rows_of(embeddings)
        dense = torch.nn.Parameter(torch.tensor([3.0, 4.0]))
        embeddings(batch(0, world.rank)).sum().backward()
        dense.grad = torch.tensor([3.0, 4.0])  # as DDP leaves it: the same on every rank
        norm = embeddings.optimizer.clip_grad_norm_(1.0, [dense])
        embeddings.optimizer.step()
        return before, rows_of(embeddings), float(norm), dense.grad.clone()

    found = in_threads(ranks, run)
    norms = {norm for _, _, norm, _ in found}
    assert len(norms) == 1
    norm = norms.pop()
    plain = in_threads(ranks, _unclipped)
    square = whole([after for _, after in plain], [before for before, _ in plain])
    assert norm == pytest.approx(math.sqrt(square + 25), rel=1e-6)  # updates are rounded to float32
    clipped = whole([after for _, after, _, _ in found], [before for before, _, _, _ in found])
    assert math.sqrt(clipped + 25 / norm**2) == pytest.approx(1.0, rel=1e-5)
    for _, _, _, grad in found:
        assert torch.allclose(grad, torch.tensor([3.0, 4.0]) / (norm + 1e-6), rtol=1e-6)


def _unclipped(world):
    embeddings = made(world, fused=False, optimizer=SGD(1.0))
    before = rows_of(embeddings)
    embeddings(batch(0, world.rank)).sum().backward()
    assert float(embeddings.optimizer.clip_grad_norm_(1e9)) > 0  # large enough: nothing is scaled
    embeddings.optimizer.step()
    return before, rows_of(embeddings)


def test_fused_updates_cannot_be_clipped():
    expected = (
        "embeddings: clip_grad_norm_ needs gradients that wait for optimizer.step(), but backward updates these "
        "rows; make them with fused=False"
    )
    with pytest.raises(ConfigError, match=re.escape(expected)):
        ShardedEmbeddings(TABLES).optimizer.clip_grad_norm_(1.0)


@pytest.mark.parametrize("placement", [RowPlacement(hot_every=4), RowPlacement(look_ahead=True)])
def test_what_knows_one_update_a_batch_is_refused_with_waiting_gradients(placement):
    with pytest.raises(ConfigError, match=r"^embeddings.fused: copies that differ .* leave one of them out$"):
        ShardedEmbeddings(TABLES, fused=False, placement=placement)


@pytest.mark.parametrize("ranks", [1, 2, 3])
@pytest.mark.parametrize("warm", [{}, {"t": [2]}], ids=["cold", "warm"])
def test_rows_that_every_rank_has_count_once_in_the_norm(tmp_path, ranks, warm):
    """Also those of a table in files that are kept in memory."""
    embeddings = made_local(
        [Table("t", rows=3, sharding="replicated", cold=True)],
        4,
        ranks,
        optimizer=SGD(0.5),
        fused=False,
        cold_folder=tmp_path,
        warm=warm,
    )
    embeddings(Lookups(torch.tensor([2, 2, 2]), torch.tensor([0, 1, 2, 3]), 1)).sum().backward()
    assert float(embeddings.optimizer.clip_grad_norm_(100.0)) == 6.0  # 3 in each of 4 columns
