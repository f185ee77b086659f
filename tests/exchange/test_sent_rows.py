"""What was sent can be seen, kept, and sent again with other codecs."""

from __future__ import annotations

import numpy as np
import torch

from laconic.adapt.policy import FixedPolicy
from laconic.codecs import BoundedRows
from laconic.exchange import Table
from laconic.exchange.coder import Coder
from laconic.exchange.exchange_plan import ExchangePlan, TableCodecs
from laconic.exchange.sent_rows import KeptBlocks
from laconic.lookups import Lookups
from tests.cases import each
from tests.distributed.made import made_local

DIM, RANKS = 8, 3
TABLES = [
    Table(name="split", rows=90, sharding="row"),
    Table(name="copied", rows=20, sharding="replicated"),
    Table(name="pooled", rows=40, send="pooled"),
]
HOT = {"split": [0, 1, 2]}
PARTS = [0, 1, 2, 0]
CODECS = {
    "forward": BoundedRows(0.01, rounding="unbiased"),
    "backward": BoundedRows(0.3, rounding="unbiased"),
}


class Arrived:
    """Keeps what the others decode."""

    def __init__(self):
        self.rows = {"forward": [], "backward": []}

    def add(self, sent):
        self.rows[sent.direction].append(sent.arrived_RD())


def trained(observer, codecs):
    """Three steps of which the last is observed; returns the ledger of that step."""
    table = TableCodecs(**codecs)
    embeddings = made_local(TABLES, DIM, RANKS, policy=FixedPolicy(ExchangePlan((table,) * 3)), hot=HOT)
    ids = torch.randint(0, 20, (3, 64), generator=torch.Generator().manual_seed(0))
    for step in range(3):
        if step == 2:
            embeddings.engines[0].ledger.reset()
            embeddings.engines[0].observe(observer)
        out_BTD = embeddings(Lookups.single(ids))
        (out_BTD * torch.linspace(-1, 1, out_BTD.numel()).view_as(out_BTD)).sum().backward()
        embeddings.optimizer.step()
    embeddings.engines[0].observe(None)
    return embeddings.engines[0].ledger


@each("direction", CODECS)
def test_blocks_travel_again_as_they_did_with_the_same_codecs_and_step(direction):
    kept, arrived = KeptBlocks(), Arrived()
    only = {direction: CODECS[direction]}
    ledger = trained(kept, only)
    trained(arrived, only)
    coder = Coder([CODECS[direction]] * len(PARTS), DIM, torch.float32)
    bytes_P = np.zeros(len(PARTS), np.int64)
    assert [blocks.rank for blocks in kept.of(direction)] == [0, 1, 2]
    for blocks, expected in zip(kept.of(direction), arrived.rows[direction], strict=True):
        again_RD, bytes_MP = blocks.travel(coder, step=2)
        assert (again_RD == expected).all()
        assert (again_RD != blocks.rows_RD).any()
        assert blocks.table_P.tolist() == PARTS
        assert len(blocks.table_R) == len(blocks.rows_RD) == blocks.counts_MP.sum()
        bytes_P += bytes_MP.sum(axis=0)
    assert (bytes_P[[0, 2]] == ledger.accounts[direction].after_T[[0, 2]]).all()
    # sums of replicated rows travel beside what is observed
    assert (bytes_P[[1, 3]] <= ledger.accounts[direction].after_T[[1, 3]]).all()


def test_what_travels_exactly_arrives_as_it_was_and_rows_of_replicas_do_not_travel():
    kept, arrived = KeptBlocks(), Arrived()
    trained(kept, {})
    trained(arrived, {})
    for direction in CODECS:
        for blocks, rows_RD in zip(kept.of(direction), arrived.rows[direction], strict=True):
            assert (blocks.rows_RD == rows_RD).all()
    for rows, gradients in zip(kept.of("forward"), kept.of("backward"), strict=True):
        assert not rows.counts_MP[:, [1, 3]].any()
        assert gradients.counts_MP[:, [1, 3]].any()  # each gradient goes to the rank that sums it
