"""Embeddings that are closed more than once, or after the job has left its process groups."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist

from laconic.exchange import Table
from laconic.exchange.ranks.world import GroupWorld
from laconic.nn import ShardedEmbeddings


@pytest.mark.parametrize("leave_first", [True, False])
def test_closing_again_or_after_the_job_has_left_does_nothing(leave_first):
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        embeddings = ShardedEmbeddings([Table("t0", rows=10, dim=4)], world=GroupWorld())
        embeddings({"t0": torch.tensor([1])}).sum().backward()
        embeddings.optimizer.step()
        if leave_first:
            dist.destroy_process_group()
        embeddings.close()
        embeddings.close()
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()
