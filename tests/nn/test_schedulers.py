"""The optimizer of rows is one of torch's: schedulers set its rate, and its state is saved."""

from __future__ import annotations

import pytest
import torch
from torch.optim.lr_scheduler import LambdaLR, StepLR

from laconic.adapt.compression import Compression
from laconic.exchange import SGD, Table
from laconic.lookups import Lookups
from laconic.nn import ShardedEmbeddings

LOOKUPS = Lookups.single({"a": torch.tensor([0, 1])})


def made(fused: bool) -> ShardedEmbeddings:
    return ShardedEmbeddings([Table("a", 3, 2)], Compression.exact(), optimizer=SGD(0.5), fused=fused)


def moved(embeddings: ShardedEmbeddings) -> float:
    """Train a step whose gradients are ones; returns how far rows moved."""
    rows = embeddings.engines[0].table_shard("a")[1]
    before = rows.clone()
    embeddings(LOOKUPS).sum().backward()
    embeddings.optimizer.step()
    return float((before - embeddings.engines[0].table_shard("a")[1])[:2].mean())


@pytest.mark.parametrize("fused", [True, False])
def test_a_scheduler_sets_the_rate_of_the_next_update(fused):
    embeddings = made(fused)
    schedule = LambdaLR(embeddings.optimizer, lambda step: [1.0, 0.5, 0.25][step])
    seen = []
    for step in range(3):
        seen.append(moved(embeddings))
        if step < 2:
            schedule.step()
    assert seen == pytest.approx([0.5, 0.25, 0.125], rel=1e-5)


def test_the_rate_is_saved_and_comes_back():
    first, second = made(True), made(True)
    schedule = StepLR(first.optimizer, 1, gamma=0.1)
    moved(first)
    schedule.step()
    second.optimizer.load_state_dict(first.optimizer.state_dict())
    assert second.optimizer.lr == pytest.approx(0.05)
    assert moved(second) == pytest.approx(0.05, rel=1e-4)
    assert repr(second.optimizer) == "EmbeddingOptimizer(SGD, lr=0.05, fused=True)"


def test_a_closure_is_called_once_and_its_loss_returned():
    embeddings = made(False)

    def closure() -> torch.Tensor:
        embeddings.optimizer.zero_grad()
        loss = embeddings(LOOKUPS).sum()
        loss.backward()
        return loss

    loss = embeddings.optimizer.step(closure).detach()
    with torch.no_grad():  # four values, each of which went down by the rate
        assert float(loss) == pytest.approx(float(embeddings(LOOKUPS).sum()) + 2.0)
