"""Large entries first under Adagrad and Adam: what travels are steps, and the optimizer stays what it is."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import laconic
from laconic.errors import ConfigError
from laconic.integrations import divided_steps
from laconic.integrations.divided_steps import DividedSteps
from laconic.reduce import LargeFirst
from tests.integrations.test_ddp import batch, make_model, over_a_known_link

OPTIMIZERS = {
    "adagrad": lambda parameters: torch.optim.Adagrad(parameters, lr=0.05),
    "adam": lambda parameters: torch.optim.Adam(parameters, lr=0.01),
    "slow adagrad": lambda parameters: torch.optim.Adagrad(parameters, lr=0.02),
    "slow adam": lambda parameters: torch.optim.Adam(parameters, lr=0.002),
    "adamw": lambda parameters: torch.optim.AdamW(parameters, lr=0.01, weight_decay=0.1),
    "fused adagrad": lambda parameters: torch.optim.Adagrad(parameters, lr=0.05, fused=True),
    "fused adam": lambda parameters: torch.optim.Adam(parameters, lr=0.01, fused=True),
}
ALL = {"keep": 1.0, "least": 1, "values": None, "agree_every": 1, "refresh": 1}
"""Every entry travels at once, and squares are agreed on in every step: nothing waits."""
FIRST = divided_steps._LEAST_STEPS
WITH = {"adagrad": "sum", "adam": "exp_avg_sq"}


def train(rank, model, optimizer, steps):
    losses = []
    for step in range(steps):
        optimizer.zero_grad()
        x, y = batch(rank, step)
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def state_of(model, optimizer):
    return [
        *(parameter.detach().numpy().copy() for parameter in model.parameters()),
        *(
            value.numpy().copy()
            for parameter in model.parameters()
            for name, value in sorted(optimizer.state[parameter].items())
        ),
    ]


def _trained(rank, ranks, kind, how, steps):
    model = DistributedDataParallel(make_model(), bucket_cap_mb=0.02)
    optimizer = OPTIMIZERS[kind](model.parameters())
    compressor = None
    if how is not None:
        compressor = laconic.register_ddp(model, LargeFirst(**how, optimizer=optimizer), bypass=False)
    losses = train(rank, model, optimizer, steps)
    held = {} if compressor is None else compressor.state_dict()
    return state_of(model, optimizer), losses, held


@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_where_nothing_waits_steps_are_those_of_the_optimizer(kind):
    """On one rank: on several, squares of a rank's gradients are no squares of their sum."""
    ((plain, _, _),) = over_a_known_link(1, _trained, kind, None, FIRST + 8)
    ((ours, _, _),) = over_a_known_link(1, _trained, kind, ALL, FIRST + 8)
    for one, two in zip(plain, ours, strict=True):
        np.testing.assert_allclose(one, two, rtol=2e-4, atol=2e-6)


@pytest.mark.parametrize("kind", ["adagrad", "adam"])
def test_replicas_and_their_optimizers_stay_equal_to_the_bit(kind):
    how = {"keep": 0.02, "least": 4, "agree_every": 3}
    results = over_a_known_link(3, _trained, kind, how, FIRST + 8)
    for state, _, held in results:
        assert [x.tobytes() for x in state] == [x.tobytes() for x in results[0][0]]
        assert any(values.any() for values in held["memory"].values())
        assert any(values.any() for values in held["squares"].values())


@pytest.mark.parametrize("kind", ["slow adagrad", "slow adam"])
def test_it_learns_as_well_as_exact_gradients_with_a_tenth_of_the_entries(kind):
    steps = 400
    (_, exact, _), _ = over_a_known_link(2, _trained, kind, None, steps)
    (_, large, _), _ = over_a_known_link(2, _trained, kind, {"keep": 0.1, "least": 4}, steps)
    assert np.mean(exact[-50:]) < 0.1 * np.mean(exact[:5])
    assert np.mean(large[-50:]) < 1.5 * np.mean(exact[-50:])


def _squares(rank, ranks, kind):
    """Return what the optimizer knows of squares, and what it should, at the end of an agreement."""
    model = DistributedDataParallel(make_model())
    optimizer = OPTIMIZERS[kind](model.parameters())
    how = LargeFirst(0.02, least=4, agree_every=FIRST + 8, optimizer=optimizer)
    laconic.register_ddp(model, how, bypass=False)
    train(rank, model, optimizer, FIRST)
    before = [optimizer.state[p][WITH[kind]].clone() for p in model.parameters()]
    squares = [torch.zeros_like(p) for p in model.parameters()]
    keeps, takes = (1.0, 1.0) if kind == "adagrad" else (0.999, 1 - 0.999)
    for step in range(FIRST, FIRST + 8):
        optimizer.zero_grad()
        with model.no_sync():  # what this rank's gradients are, weights being what they are
            x, y = batch(rank, step)
            nn.functional.mse_loss(model(x), y).backward()
        for square, known, parameter in zip(squares, before, model.parameters(), strict=True):
            square.mul_(keeps).add_(takes * (parameter.grad / ranks) ** 2)
            known.mul_(keeps)
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()
    after = [optimizer.state[p][WITH[kind]] for p in model.parameters()]
    return [(a - b).numpy() for a, b in zip(after, before, strict=True)], [s.numpy() for s in squares]


@pytest.mark.parametrize("kind", WITH)
def test_squares_are_those_of_all_ranks_within_a_level(kind):
    """Levels are within a ninth of a value; the optimizer's state has float32's rounding besides."""
    results = over_a_known_link(2, _squares, kind)
    wanted = [sum(parts) for parts in zip(*(squares for _, squares in results), strict=True)]
    for found, _ in results:
        for got, sum_of_squares in zip(found, wanted, strict=True):
            np.testing.assert_allclose(got, sum_of_squares, rtol=0.13, atol=1e-5)


def test_steps_that_are_left_to_ddp_are_the_optimizers_own():
    """The first ones, of which it knows too little, and those after a compressor was closed."""
    ((plain, _, _),) = over_a_known_link(1, _trained, "adagrad", None, FIRST)
    ((ours, _, held),) = over_a_known_link(1, _trained, "adagrad", {"keep": 0.1}, FIRST)
    assert [x.tobytes() for x in plain] == [x.tobytes() for x in ours]
    assert not held["squares"]


def test_a_step_that_was_never_taken_leaves_no_mark():
    parameter = nn.Parameter(torch.ones(3))
    optimizer = torch.optim.Adagrad([parameter], lr=0.1)
    divided = DividedSteps(optimizer, {id(parameter): "weight"})
    x = np.full(3, 0.5, np.float32)
    divided.restore(x, [parameter], 1.0)
    divided.forget([parameter])  # its next gradient is a gradient
    parameter.grad = torch.full((3,), 2.0)
    optimizer.step()
    assert optimizer.state[parameter]["sum"].tolist() == [4.0] * 3
    divided.close()
    divided.close()


def test_huge_steps_are_cut_where_float32_cannot_hold_their_squares_apart():
    parameter = nn.Parameter(torch.zeros(2))
    optimizer = torch.optim.Adagrad([parameter], lr=1.0)
    optimizer.state[parameter]["sum"] += torch.tensor([4.0, 0.0])
    divided = DividedSteps(optimizer, {id(parameter): "weight"})
    x = np.array([1e30, -1e30], np.float32)
    divided.restore(x, [parameter], 1.0)
    parameter.grad = torch.from_numpy(x)
    optimizer.step()
    assert parameter.tolist() == pytest.approx([-256, 256], rel=0.2)
    assert optimizer.state[parameter]["sum"].tolist() == [4.0, 0.0]
    divided.close()


def _refused(rank, ranks):
    model = DistributedDataParallel(nn.Linear(4, 2))
    other = nn.Linear(4, 2)
    found = []
    for optimizer in (
        torch.optim.SGD(model.parameters(), lr=0.1),
        torch.optim.Adam(model.parameters(), amsgrad=True),
        torch.optim.Adagrad(model.parameters(), weight_decay=0.5),
        torch.optim.Adam(other.parameters()),
    ):
        with pytest.raises(ConfigError) as error:
            laconic.register_ddp(model, LargeFirst(0.1, optimizer=optimizer))
        found.append(str(error.value))
        assert not optimizer._optimizer_step_pre_hooks
    return found


def test_optimizers_that_cannot_be_divided_before_are_refused():
    ((sgd, amsgrad, decay, foreign),) = over_a_known_link(1, _refused)
    assert sgd == (
        "register_ddp: optimizer: expected Adagrad, Adam or AdamW, got SGD; SGD needs none, and others "
        "cannot be divided before"
    )
    assert "got Adam with amsgrad;" in amsgrad
    assert "expected weight_decay=0, got 0.5: Adagrad adds it" in decay
    assert "expected one that updates 'module.weight'" in foreign or "updates 'bias'" in foreign
