"""What a user's own script may do with sharded embeddings, to run on several ranks."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from laconic.exchange import Table
from laconic.lookups import Lookups
from tests.distributed.made import made

TABLES = [Table(name="a", rows=8, sharding="row")]


class Together(nn.Module):
    """Tables and dense layers in one module."""

    def __init__(self) -> None:
        super().__init__()
        self.embeddings = made(TABLES, 2, seed=1)
        self.layer = nn.Linear(2, 1)

    def forward(self, lookups: Lookups) -> torch.Tensor:
        return self.layer(self.embeddings(lookups).sum(1))


def wrap_in_ddp(rank: int, ranks: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return this rank's shard before and after DDP has wrapped and run the module."""
    module = Together()
    before = module.embeddings.engines[0].weight_RD.clone()
    model = DistributedDataParallel(module)
    with torch.no_grad():
        model(Lookups.single(torch.tensor([[0, 5]])))
    return before, module.embeddings.engines[0].weight_RD.clone()
