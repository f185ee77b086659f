"""What a rank asks of itself travels too: it is rounded, counted and seen; nothing else changes."""

from __future__ import annotations

import numpy as np
import torch

from laconic.adapt.policy import FixedPolicy
from laconic.codecs import BoundedRows
from laconic.exchange import SGD, Table
from laconic.exchange.exchange_plan import ExchangePlan, TableCodecs
from laconic.exchange.sent_rows import KeptBlocks
from laconic.lookups import Lookups
from tests.cases import each
from tests.distributed.made import made_local
from tests.distributed.many_ranks import random_batches

DIM = 8
TABLES = [
    Table(name="split", rows=90, sharding="row"),
    Table(name="whole", rows=50, pooling="mean"),
    Table(name="copied", rows=20, sharding="replicated"),
    Table(name="pooled", rows=40, send="pooled"),
    Table(name="partial", rows=40, send="pooled", sharding="row"),
]
HOT = {"split": [0, 1, 2]}
SENT = [0, 1, 3, 4]
"""Parts whose rows travel; the others are the replicated table and the hot rows."""
BOUNDED = TableCodecs(BoundedRows(0.05), BoundedRows(0.02))


def trained(ranks, codecs, *, all_remote, observer=None):
    """Train three steps; returns embeddings and what they gave."""
    policy = FixedPolicy(ExchangePlan((codecs,) * len(TABLES)))
    embeddings = made_local(
        TABLES, DIM, ranks, optimizer=SGD(0.5), policy=policy, hot=HOT, all_remote=all_remote
    )
    embeddings.engines[0].observe(observer)
    outputs = []
    for _, _, lookups in random_batches(TABLES, [60, 7, 0], most=3, seed=1, dtype=torch.float32):
        out_BTD = embeddings(lookups)
        (out_BTD * torch.linspace(-1, 1, out_BTD.numel()).view_as(out_BTD)).sum().backward()
        embeddings.optimizer.step()
        outputs.append(out_BTD.detach())
    return embeddings, outputs


@each("ranks", [1, 3])
def test_what_travels_exactly_is_the_same_and_only_counted(ranks):
    (plain, plain_outputs), (remote, outputs) = (
        trained(ranks, TableCodecs(), all_remote=all_remote) for all_remote in (False, True)
    )
    for one, other in zip(plain_outputs, outputs, strict=True):
        assert torch.equal(one, other)
    for table in TABLES:
        assert torch.equal(*(each.engines[0].table_shard(table.name)[1] for each in (plain, remote)))
    for direction in ("ids", "forward", "backward"):
        local, every = (each.engines[0].ledger.accounts[direction] for each in (plain, remote))
        assert (local.steps, local.sizes) == (every.steps, every.sizes)
        more_P = every.after_T - local.after_T
        assert (more_P[SENT] > 0).all()
        assert not np.delete(more_P, SENT).any()


def test_one_rank_sends_itself_what_the_codec_makes_of_it():
    lookups = Lookups.single(torch.arange(10).repeat(len(TABLES), 1) % 10 + 3)
    embeddings, _ = trained(1, BOUNDED, all_remote=True)
    alone, _ = trained(1, BOUNDED, all_remote=False)
    for name in ("split", "whole", "pooled", "partial"):
        assert not torch.equal(*(each.engines[0].table_shard(name)[1] for each in (embeddings, alone)))
    with torch.no_grad():
        arrived_BTD = embeddings(lookups)
        embeddings.eval()
        exact_BTD = embeddings(lookups)
    error_T = (arrived_BTD - exact_BTD).abs().amax((0, 2))
    assert error_T[2] == 0
    assert ((error_T > 0) & (error_T <= 0.05)).tolist() == [True, True, False, True, True]


def test_observers_see_all_that_the_ledger_counts():
    kept = KeptBlocks()
    embeddings, _ = trained(2, BOUNDED, all_remote=True, observer=kept)
    for direction in ("forward", "backward"):
        rows_P = sum(blocks.counts_MP.sum(axis=0) for blocks in kept.of(direction))
        before_P = embeddings.engines[0].ledger.accounts[direction].before_T
        assert (4 * DIM * rows_P).tolist() == before_P.tolist()
        assert len(kept.of(direction)) == 3 * 2 * 2
