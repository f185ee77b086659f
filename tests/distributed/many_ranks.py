"""Training over the exchange, to run on several ranks."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

from laconic.exchange import SGD, RowwiseAdagrad, Table
from laconic.exchange.ranks.world import GroupWorld
from laconic.lookups import Lookups
from laconic.nn import ShardedEmbeddings, sum_gradients
from tests.distributed.made import made
from tests.distributed.one_process import Scorer, loss_sum

TABLES = [
    Table(name="split", rows=300, sharding="row"),
    Table(name="whole", rows=200),
    Table(name="copied", rows=40, sharding="replicated"),
    Table(name="pooled", rows=100, send="pooled"),
    Table(name="partial", rows=90, send="pooled", sharding="row", pooling="mean"),
]
"""One of every kind."""


def random_batches(
    tables: list[Table],
    sizes: list[int],
    *,
    most: int,
    seed: int,
    dtype: torch.dtype,
    idle: int | None = None,
) -> list[tuple[Tensor, Tensor, Lookups]]:
    """Batches of these sizes with bags of up to ``most`` ids (1: exactly one); nobody looks up table ``idle``."""
    generator = torch.Generator().manual_seed(seed)
    batches = []
    for samples in sizes:
        ids, lengths = [], []
        for t, table in enumerate(tables):
            low = 1 if most == 1 else 0
            count = torch.randint(low, most + 1, (samples,), generator=generator)
            if t == idle:
                count.zero_()
            lengths.append(count)
            skewed = torch.rand(int(count.sum()), generator=generator) ** 3 * table.rows
            ids.append(skewed.long().clamp(max=table.rows - 1))
        offsets = torch.cat([torch.zeros(1, dtype=torch.int64), torch.cat(lengths).cumsum(0)])
        label = torch.randint(0, 2, (samples,), generator=generator).to(dtype)
        dense = torch.randn(samples, 3, generator=generator, dtype=dtype)
        batches.append((label, dense, Lookups(torch.cat(ids), offsets, len(tables))))
    return batches


def part_of(lookups: Lookups, first: int, last: int) -> Lookups:
    """Samples first..last of all tables."""
    samples, offsets = lookups.samples, lookups.offsets
    lengths_TB = offsets.diff().view(lookups.tables, samples)[:, first:last]
    ends = [(offsets[t * samples + first], offsets[t * samples + last]) for t in range(lookups.tables)]
    ids_L = torch.cat([*(lookups.ids_L[start:end] for start, end in ends), lookups.ids_L[:0]])
    return Lookups(ids_L, torch.cat([offsets[:1], lengths_TB.flatten().cumsum(0)]), lookups.tables)


def train(
    rank: int,
    ranks: int,
    tables: list[Table],
    dim: int,
    batches: list[tuple[Tensor, Tensor, Lookups]],
    optimizer: SGD | RowwiseAdagrad,
    rate: float,
    prefetch: bool = True,
    empty_rank: int | None = None,
    policy: Any = None,
    pairwise: bool = True,
    **placement: Any,
) -> dict[str, Any]:
    """Train on this rank's part of every batch; returns shards and copies by table name, dense weights and losses."""
    dtype = batches[0][0].dtype
    world = GroupWorld(pairwise=pairwise)
    embeddings = made(
        tables, dim, optimizer=optimizer, seed=5, dtype=dtype, policy=policy, world=world, **placement
    )
    scorer = Scorer(len(tables), dim, dtype)
    model = DistributedDataParallel(scorer) if ranks > 1 else scorer
    if ranks > 1:
        model.register_comm_hook(None, sum_gradients)
    dense = torch.optim.SGD(scorer.parameters(), lr=rate)
    mine = []
    for label_B, dense_BF, lookups in batches:
        first, last = _share(rank, ranks, len(label_B), empty_rank)
        mine.append((label_B[first:last], dense_BF[first:last], part_of(lookups, first, last)))
    losses = []
    for step, (label_B, dense_BF, lookups) in enumerate(mine):
        pending = embeddings.start(lookups)
        if prefetch and step + 1 < len(mine):
            embeddings.prefetch(mine[step + 1][2])
        loss = loss_sum(model(dense_BF, pending.wait()), label_B) / pending.global_samples
        dense.zero_grad()
        loss.backward()
        dense.step()
        embeddings.optimizer.step()
        losses.append(loss.item())
    embeddings.engines[0].synchronize()
    shards = {table.name: embeddings.engines[0].table_shard(table.name)[:2] for table in tables}
    return {
        "shards": {name: (ids, rows.clone()) for name, (ids, rows) in shards.items()},
        "dense": [parameter.detach().clone() for parameter in scorer.parameters()],
        "losses": losses,
        "ledger": embeddings.engines[0].ledger.summary(),
        "tables": embeddings.engines[0].ledger.rows(),
        "copies": {table.name: _copies(embeddings, table.name) for table in tables},
        "states": {table.name: embeddings.engines[0].table_shard(table.name)[2] for table in tables},
    }


def _copies(embeddings: ShardedEmbeddings, name: str) -> list[Tensor]:
    _, rows, state = embeddings.engines[0].hot_rows(name)
    return [rows.clone(), *([] if state is None else [state.clone()])]


def _share(rank: int, ranks: int, samples: int, empty_rank: int | None) -> tuple[int, int]:
    if empty_rank is None:
        return rank * samples // ranks, (rank + 1) * samples // ranks
    workers = [r for r in range(ranks) if r != empty_rank]
    if rank == empty_rank:
        return 0, 0
    k = workers.index(rank)
    return k * samples // len(workers), (k + 1) * samples // len(workers)


def first_weights(tables: list[Table], dim: int, dtype: torch.dtype) -> list[Tensor]:
    """Return the first values of whole tables."""
    alone = made(tables, dim, seed=5, dtype=dtype)
    return [alone.engines[0].table_shard(table.name)[1].clone() for table in tables]


def whole_tables(results: list[dict[str, Any]], tables: list[Table]) -> list[Tensor]:
    """Put the ranks' shards together; replicas must be equal."""
    whole = []
    for table in tables:
        weight = torch.full(
            (table.rows, results[0]["shards"][table.name][1].shape[1]), torch.nan, dtype=torch.float64
        )
        for result in results:
            ids, rows = result["shards"][table.name]
            index = torch.tensor(list(ids), dtype=torch.int64)
            known = weight[index]
            assert (known.isnan() | (known == rows)).all(), "replicas differ"
            weight[index] = rows.double()
        whole.append(weight)
    return whole
