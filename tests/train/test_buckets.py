"""Buckets of dense gradients: DDP itself is asked where they end."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from laconic.models import DLRM, DCNv2, Model
from laconic.train.dense import bucket_cap_mb


@pytest.fixture
def _one_rank() -> Iterator[None]:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def dlrm(tables: int) -> DLRM:
    return DLRM(dense=13, tables=tables, dim=64, bottom=(512, 256), top=(512, 512, 256))


@pytest.mark.usefixtures("_one_rank")
@pytest.mark.parametrize("tables", [26, 40])
def test_the_head_does_not_wait_for_the_bottom(tables: int) -> None:
    buckets = buckets_of(dlrm(tables), bucket_cap_mb(dlrm(tables), coded=True))

    assert [{name.startswith("bottom.") for name in bucket} for bucket in buckets] == [
        {False},
        {False},
        {True},
    ]


@pytest.mark.usefixtures("_one_rank")
def test_what_remains_of_a_head_waits_if_it_is_too_little_for_a_round_of_messages() -> None:
    model = dlrm(tables=8)
    cap = bucket_cap_mb(model, coded=True)

    assert cap == 1
    assert len(buckets_of(model, cap)) == 2


def test_capacity_is_within_reason() -> None:
    models: list[Model] = [dlrm(tables) for tables in range(1, 60, 3)]
    models += [DCNv2(dense=d, tables=t, dim=16) for d in (0, 13) for t in (1, 26)]

    assert all(0.5 <= bucket_cap_mb(model, coded=True) <= 1 for model in models)
    assert {bucket_cap_mb(model, coded=False) for model in models} == {0.5}


def buckets_of(model: DLRM, cap: float) -> list[list[str]]:
    """Names of parameters, bucket by bucket, in the order in which they travel."""
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    replica = DistributedDataParallel(model, bucket_cap_mb=cap, gradient_as_bucket_view=True)
    seen: list[list[str]] = []

    def note(_: None, bucket: Any) -> torch.futures.Future[torch.Tensor]:
        seen.append([names[id(parameter)] for parameter in bucket.parameters()])
        done: torch.futures.Future[torch.Tensor] = torch.futures.Future()
        done.set_result(bucket.buffer())
        return done

    note.__annotations__ = {"bucket": dist.GradBucket, "return": torch.futures.Future[torch.Tensor]}
    replica.register_comm_hook(None, note)
    for _ in range(3):  # buckets are made anew after the first step
        seen.clear()
        replica(torch.zeros(2, 13), torch.zeros(2, model.tables, 64)).sum().backward()
    return seen
