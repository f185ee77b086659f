"""The optimizer of rows: what it refuses, and what clipping does to gradients."""

from __future__ import annotations

import copy
import math
import re

import pytest
import torch

from laconic.adapt.compression import Compression
from laconic.errors import ConfigError, PlanError
from laconic.exchange import SGD, Table
from laconic.nn import ShardedEmbeddings


def made(**options) -> ShardedEmbeddings:
    tables = [Table("t0", rows=10, dim=4, sharding="row")]
    return ShardedEmbeddings(tables, Compression.exact(), optimizer=SGD(1.0), **options)


def rows(embeddings: ShardedEmbeddings) -> torch.Tensor:
    return embeddings.engines[0].table_shard("t0")[1].clone()


def dense(gradient: float = 1.0) -> torch.nn.Parameter:
    parameter = torch.nn.Parameter(torch.ones(4))
    parameter.grad = torch.full((4,), gradient)
    return parameter


def test_clipping_leaves_gradients_that_come_later_as_they_are():
    embeddings = made(fused=False)
    first = rows(embeddings)
    (embeddings({"t0": torch.tensor([1])}) * 100).sum().backward()
    assert float(embeddings.optimizer.clip_grad_norm_(1.0)) == 200.0
    embeddings({"t0": torch.tensor([2])}).sum().backward()
    embeddings.optimizer.step()
    changed = first - rows(embeddings)
    torch.testing.assert_close(changed[1], torch.full((4,), 0.5))
    torch.testing.assert_close(changed[2], torch.ones(4))


def test_one_tensor_of_parameters_is_clipped():
    parameter = dense(5.0)
    assert float(made(fused=False).optimizer.clip_grad_norm_(1.0, parameter)) == 10.0
    torch.testing.assert_close(parameter.grad, torch.full((4,), 0.5))


@pytest.mark.parametrize("max_norm", [-1.0, math.nan])
def test_a_norm_that_is_none_is_refused(max_norm):
    text = f"embeddings.clip_grad_norm_: expected max_norm of at least 0, got {max_norm}"
    with pytest.raises(ConfigError, match=re.escape(text)):
        made(fused=False).optimizer.clip_grad_norm_(max_norm)


@pytest.mark.parametrize("factor", [math.nan, math.inf])
def test_gradients_that_are_not_finite_spoil_what_torch_spoils_or_are_refused(factor):
    embeddings, parameter, own = made(fused=False), dense(), dense()
    (embeddings({"t0": torch.tensor([1])}) * factor).sum().backward()
    with pytest.raises(
        PlanError, match=f"expected gradients with a finite norm, got {factor}; look at the loss"
    ):
        embeddings.optimizer.clip_grad_norm_(1.0, [parameter], error_if_nonfinite=True)
    embeddings.optimizer.clip_grad_norm_(1.0, [parameter])
    spoilt = torch.nn.Parameter(torch.ones(4))
    spoilt.grad = torch.full((4,), factor)
    torch.nn.utils.clip_grad_norm_([own, spoilt], 1.0)
    torch.testing.assert_close(parameter.grad, own.grad, equal_nan=True)
    embeddings.optimizer.step()
    assert rows(embeddings)[1].isnan().all()


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("lr", [-1.0, math.nan, math.inf])
def test_a_bad_learning_rate_is_refused_and_rows_stay_usable(fused, lr):
    embeddings = made(fused=fused)
    loss = embeddings({"t0": torch.tensor([1])}).sum()
    embeddings.optimizer.param_groups[0]["lr"] = lr
    if not fused:
        loss.backward()
    with pytest.raises(ConfigError, match=f"expected a finite learning rate of at least 0, got {lr}; set"):
        loss.backward() if fused else embeddings.optimizer.step()
    embeddings.optimizer.param_groups[0]["lr"] = 1.0
    first = rows(embeddings)
    embeddings({"t0": torch.tensor([2])}).sum().backward()
    embeddings.optimizer.step()
    torch.testing.assert_close(first[2] - rows(embeddings)[2], torch.ones(4))


def test_the_optimizer_takes_no_other_parameters_and_is_not_copied_alone():
    embeddings = made()
    with pytest.raises(ConfigError, match="expected no parameters besides its rows, got another group"):
        embeddings.optimizer.add_param_group({"params": [dense()]})
    with pytest.raises(
        ConfigError, match="expected to be copied with its embeddings, got deepcopy of it alone"
    ):
        copy.deepcopy(embeddings.optimizer)
    other, optimizer = copy.deepcopy((embeddings, embeddings.optimizer))
    assert optimizer is other.optimizer


def test_a_wait_for_an_update_that_was_interrupted_can_be_repeated(monkeypatch):
    embeddings = made()
    embeddings({"t0": torch.tensor([1, 2])}).sum().backward()
    pipeline = embeddings.engines[0].pipeline
    update = pipeline._update

    def interrupted():
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(update, "result", interrupted)
        with pytest.raises(KeyboardInterrupt):
            embeddings.optimizer.step()
    assert pipeline.finish() == 2
    assert pipeline.finish() == 0
