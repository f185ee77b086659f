"""Weights within bags are those of torch's ``embedding_bag``, forward and backward."""

from __future__ import annotations

import re

import pytest
import torch
from torch.nn.functional import embedding_bag

from laconic.adapt.compression import Compression
from laconic.errors import ConfigError
from laconic.exchange import SGD, Table
from laconic.lookups import Lookups
from laconic.nn import ShardedEmbeddings
from tests.reduce.threads import in_threads


@pytest.mark.parametrize("offsets", [[0, 3, 3, 4], [0, 1, 2, 3]], ids=["bags", "one id each"])
def test_rows_count_by_their_weights_and_weights_get_gradients(offsets):
    table = Table("only", 9, 4)
    embeddings = ShardedEmbeddings([table], Compression.exact(), optimizer=SGD(0.5), dtype=torch.float64)
    rows_RD = embeddings.engines[0].weight_RD.clone().requires_grad_()
    ids, ends = torch.tensor([0, 8, 8, 2])[: offsets[-1]], torch.tensor(offsets)
    ours, theirs = (torch.tensor([0.5, -2.0, 3.0, 0.0][: offsets[-1]], dtype=torch.float64) for _ in range(2))
    ours.requires_grad_(), theirs.requires_grad_()
    expected_BD = embedding_bag(ids, rows_RD, ends[:-1], mode="sum", per_sample_weights=theirs)
    out_BTD = embeddings(Lookups.bags({"only": (ids, ends)}, weights={"only": ours}))
    factor = torch.arange(1.0, 13.0, dtype=torch.float64).view(3, 4)
    assert torch.allclose(out_BTD[:, 0], expected_BD, rtol=1e-14)
    (out_BTD[:, 0] * factor).sum().backward()
    (expected_BD * factor).sum().backward()
    embeddings.optimizer.step()
    assert torch.allclose(ours.grad, theirs.grad, rtol=1e-13)
    updated = rows_RD.detach() - 0.5 * rows_RD.grad
    assert torch.allclose(embeddings.engines[0].weight_RD, updated, rtol=1e-13, atol=1e-15)


def test_weights_of_one_are_no_weights_on_every_rank():
    tables = [Table("split", 20, 4, sharding="row"), Table("copied", 5, 4, sharding="replicated")]

    def run(world):
        found = []
        for weighted in (False, True):
            embeddings = ShardedEmbeddings(tables, seed=1, world=world)
            ids = torch.arange(12).view(2, 6) % 5 + world.rank
            lookups = Lookups(ids.clamp(max=4).reshape(-1), torch.tensor([0, 2, 3, 6, 6, 8, 12]), 2)
            if weighted:
                lookups = Lookups(lookups.ids_L, lookups.offsets, 2, torch.ones(12))
            embeddings(lookups).square().sum().backward()
            embeddings.optimizer.step()
            found.append(embeddings.engines[0].weight_RD)
        return torch.equal(*found)

    assert in_threads(2, run) == [True, True]


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (
            Table("p", 5, 2, send="pooled"),
            "table 'p' is pooled by the owner of its rows, who does not get them; ",
        ),
        (Table("m", 5, 2, pooling="mean"), "table 'm' has pooling 'mean'; weights are for 'sum'"),
    ],
    ids=["pooled", "mean"],
)
def test_tables_that_cannot_weigh_are_refused(table, message):
    lookups = Lookups(torch.tensor([1]), torch.tensor([0, 1]), 1, torch.ones(1))
    with pytest.raises(ConfigError, match=re.escape(message)):
        ShardedEmbeddings([table])(lookups)
