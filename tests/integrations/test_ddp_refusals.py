"""``register_ddp`` does what it is told, or says at once why not. One rank shows it."""

from __future__ import annotations

import re
import threading
import warnings
from collections import Counter

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import laconic
from laconic.errors import CommError, ConfigError, PlanError
from laconic.reduce import Reducer
from tests.cases import each


@pytest.fixture(scope="module", autouse=True)
def _one_rank():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def wrapped(dtype=torch.float32):
    return DistributedDataParallel(nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 1)).to(dtype))


def reasons(compressor):
    """How often buckets were bypassed, by reason."""
    found = Counter()
    for bypass in compressor.report().bypassed:
        found[bypass.reason] += bypass.times
    return found


class Looked(nn.Module):
    """A table with sparse gradients, and a layer."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.layer = nn.Embedding(9, 4, sparse=True), nn.Linear(4, 1)

    def forward(self, ids):
        return self.layer(self.table(ids))


@each(
    ("arguments", "message"),
    [
        ({"method": "levels"}, "method: expected a codec of float32 or None, got 'levels'; write laconic.Levels()"),
        ({"method": laconic.Levels}, "got the class Levels; write laconic.Levels()"),
        ({"method": laconic.BoundedRows}, 'class BoundedRows; write laconic.BoundedRows(0.01, relative_to="range")'),
        ({"method": laconic.IdList()}, "got IdList(); write laconic.Levels(), laconic.Bounded("),
        ({"method": laconic.Sketch}, "got the class Sketch; write laconic.Levels(), laconic.Bounded("),
        ({"method": laconic.Threshold()}, "got Threshold(keep=0.25, "),
        ({"method": 0.01}, "method: expected a codec of float32 or None, got 0.01"),
        ({"method": laconic.LargeFirst}, "got the class LargeFirst; write laconic.LargeFirst(0.01)"),
        ({"method": laconic.InNetwork}, "got the class InNetwork"),
        ({"reduction": "max"}, "reduction: expected 'mean' or 'sum', got 'max'"),
        ({"method": laconic.Compression}, "got the class Compression"),
        ({"warmup": -1}, "warmup: expected at least 0 steps, got -1"),
        ({"warmup": 2.5}, "warmup: expected at least 0 steps, got 2.5"),
    ],
)  # fmt: skip
def test_what_cannot_be_done_is_refused_when_it_is_registered(arguments, message):
    with pytest.raises(ConfigError, match=re.escape(message)) as caught:
        laconic.register_ddp(wrapped(), **arguments)
    assert str(caught.value).startswith("register_ddp: ")


@each(
    ("patterns", "parameters"),
    [({"include": "0.weight"}, 1), ({"exclude": "*.bias"}, 2), ({"include": ["0.*", "1.bias"]}, 3)],
)
def test_a_text_is_one_pattern(patterns, parameters):
    compressor = laconic.register_ddp(wrapped(), laconic.Levels(), **patterns)
    assert f"parameters={parameters}," in repr(compressor)
    compressor.close()


@each(
    ("arguments", "exact_steps"),
    [({}, 2), ({"warmup": 1}, 1)],
)
def test_a_compression_says_the_method_and_the_warm_up(arguments, exact_steps):
    model = wrapped()
    compression = laconic.Compression(dense=laconic.Levels(), warmup=2)
    compressor = laconic.register_ddp(model, compression, bypass=False, **arguments)
    assert repr(compressor).startswith("Compressor(Levels(), parameters=4,")
    for _ in range(4):
        model(torch.ones(2, 4)).sum().backward()
    assert reasons(compressor) == {"warm-up": exact_steps}
    compressor.close()


METHODS = [laconic.Levels(), laconic.LargeFirst(), laconic.Rounded()]


@each("method", METHODS)
@each("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_a_parameter_of_another_type_is_named_when_it_is_registered(method, dtype):
    with pytest.raises(ConfigError) as caught:
        laconic.register_ddp(wrapped(dtype), method, bypass=False)
    assert str(caught.value) == (
        f"register_ddp: {type(method).__name__}: expected dense float32 gradients on the CPU, got gradients of {dtype} on cpu "
        "of '0.weight' and 3 others; leave them to DDP with exclude=['0.weight', '0.bias', '1.weight', '1.bias'], "
        "or convert them"
    )


def test_frozen_parameters_may_be_of_any_type():
    model = nn.Sequential(nn.Linear(4, 4).bfloat16().requires_grad_(False), nn.Linear(4, 1))
    laconic.register_ddp(DistributedDataParallel(model), laconic.Levels()).close()


def test_unless_anything_is_asked_for_ddp_sums_other_types_and_one_warning_says_so():
    model = wrapped(torch.bfloat16)
    told = "gradients of torch.bfloat16 on cpu of '0.weight' and 3 others travel as DDP sends them"
    with pytest.warns(UserWarning, match=told) as warned:
        compressor = laconic.register_ddp(model)
    assert len(warned) == 1
    for _ in range(2):
        model(torch.ones(2, 4, dtype=torch.bfloat16)).sum().backward()
    assert compressor.bypassed == compressor.buckets > 0
    assert reasons(compressor) == {"gradients of torch.bfloat16 on cpu": compressor.buckets}
    compressor.close()


def test_excluded_parameters_may_be_of_any_type():
    layers = nn.Sequential(nn.Linear(4, 4).bfloat16(), nn.Identity(), nn.Linear(4, 1))
    layers[1].forward = lambda x: x.float()
    model = DistributedDataParallel(layers)
    compressor = laconic.register_ddp(model, laconic.Levels(), exclude=["0.*"], bypass=False)
    model(torch.ones(2, 4, dtype=torch.bfloat16)).sum().backward()
    assert reasons(compressor) == {"gradients of torch.bfloat16 on cpu": 1}
    assert compressor.buckets == 2
    compressor.close()


def test_sparse_gradients_are_refused_where_they_were_to_be_compressed():
    with pytest.raises(
        ConfigError, match=r"got sparse gradients of 'table.weight'; .* exclude=\['table.weight'\]"
    ):
        laconic.register_ddp(DistributedDataParallel(Looked()), laconic.Levels())


@each("how", [{}, {"method": laconic.Levels(), "exclude": ["table.*"]}])
def test_sparse_gradients_are_left_to_ddp(how):
    torch.manual_seed(0)
    model, ids = Looked(), torch.tensor([1, 7, 1])
    replica = DistributedDataParallel(model)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        compressor = laconic.register_ddp(replica, bypass=False, **how)
    replica(ids).sum().backward()
    assert model.table.weight.grad.is_sparse
    expected = torch.zeros(9, 4)
    expected[1], expected[7] = 2 * model.layer.weight[0].detach(), model.layer.weight[0].detach()
    assert torch.equal(model.table.weight.grad.to_dense(), expected)
    assert reasons(compressor) == {"sparse gradients": 1}
    compressor.close()


def test_the_report_says_why_a_bucket_was_bypassed():
    model = wrapped()
    compressor = laconic.register_ddp(model, warmup=1)
    for _ in range(3):  # the first is warm-up, the second looks
        model(torch.ones(2, 4)).sum().backward()
    assert reasons(compressor) == {"warm-up": 1, "no faster than DDP": 1}
    compressor.begin()
    assert reasons(compressor) == {}
    compressor.close()


def test_what_fails_in_a_thread_comes_out_of_backward_as_it_is(monkeypatch):
    """Also where the measurement before the first bucket fails, whose error is no bucket's."""

    def lost(_reducer):
        raise CommError("all-reduce 0, turn 1: rank 0 lost a peer")

    monkeypatch.setattr(Reducer, "measure", lost)
    model = wrapped()
    compressor = laconic.register_ddp(model, laconic.Levels(), bypass=False)
    for _ in range(2):  # and it stays so
        with pytest.raises(CommError, match=r"^all-reduce 0, turn 1: rank 0 lost a peer$"):
            model(torch.ones(2, 4)).sum().backward()
    compressor.close()


def test_a_state_that_is_none_is_refused():
    compressor = laconic.register_ddp(wrapped())
    with pytest.raises(
        ConfigError, match=r"expected what compressor.state_dict\(\) returned, got \[\] without memory"
    ):
        compressor.load_state_dict({})
    compressor.close()


def test_a_compiled_model_is_the_model_that_was_compiled():
    compiled = torch.compile(wrapped(), backend="eager")
    laconic.register_ddp(compiled).close()


def saved_by(rank, ranks, memory=True):
    held = {"1.bias": torch.ones(1)} if memory else {}
    return {"rank": rank, "ranks": ranks, "step": 4, "memory": held, "thresholds": {}}


@each(("rank", "ranks"), [(1, 2), (0, 2)])
def test_what_another_rank_held_back_is_refused(rank, ranks):
    compressor = laconic.register_ddp(wrapped(), laconic.LargeFirst())
    with pytest.raises(ConfigError) as caught:
        compressor.load_state_dict(saved_by(rank, ranks))
    assert str(caught.value) == (
        f"register_ddp: expected what rank 0 of 1 held back, got that of rank {rank} of {ranks}; save "
        "compressor.state_dict() on every rank, in a file of its own, and load it there"
    )
    compressor.load_state_dict(saved_by(rank, ranks, memory=False))  # nothing in it is anybody's
    assert compressor.step == 4
    compressor.close()


def test_what_was_saved_before_ranks_were_is_read():
    compressor = laconic.register_ddp(wrapped(), laconic.LargeFirst())
    old = saved_by(0, 1)
    del old["rank"], old["ranks"]
    compressor.load_state_dict(old)
    again = compressor.state_dict()
    assert torch.equal(again["memory"]["1.bias"], torch.ones(1))
    assert (again["rank"], again["ranks"]) == (0, 1)
    compressor.close()


def test_what_was_held_back_before_a_state_was_loaded_is_forgotten():
    model = wrapped()
    compressor = laconic.register_ddp(model, laconic.LargeFirst(0.1, least=1), bypass=False)
    model(torch.arange(4.0)).sum().backward()
    assert set(compressor.state_dict()["memory"]) == {"0.weight", "0.bias", "1.weight", "1.bias"}
    compressor.load_state_dict(saved_by(0, 1))
    assert compressor.state_dict()["memory"] == {"1.bias": torch.ones(1)}
    compressor.close()


def test_what_a_model_of_other_sizes_held_back_is_refused_and_nothing_changes():
    compressor = laconic.register_ddp(wrapped(), laconic.LargeFirst())
    compressor.load_state_dict(saved_by(0, 1))
    other = saved_by(0, 1)
    other["memory"]["0.weight"] = torch.ones(5)
    with pytest.raises(ConfigError) as caught:
        compressor.load_state_dict(other)
    assert str(caught.value) == (
        "register_ddp: expected 12 saved entries of '0.weight', got 5; load what a model of the same sizes saved"
    )
    assert compressor.state_dict()["memory"] == {"1.bias": torch.ones(1)}
    compressor.close()


def threads():
    return [thread for thread in threading.enumerate() if thread.name.startswith("laconic-ddp")]


def test_a_second_hook_is_refused_and_leaves_no_thread():
    model = wrapped()
    compressor = laconic.register_ddp(model)
    before = threads()
    with pytest.raises(ConfigError) as caught:
        laconic.register_ddp(model)
    assert str(caught.value) == (
        "register_ddp: expected a model without a communication hook, got one with ddp_hook; "
        "wrap the model anew, DDP takes one hook only"
    )
    assert threads() == before
    compressor.close()


def test_where_torch_refuses_the_hook_no_thread_is_left():
    model, before = wrapped(), threads()
    model._register_builtin_comm_hook(dist.BuiltinCommHookType.FP16_COMPRESS)
    with pytest.raises(RuntimeError, match="register_comm_hook"):
        laconic.register_ddp(model)
    assert threads() == before


def test_a_backward_pass_after_the_end_says_what_to_do():
    model = wrapped()
    compressor = laconic.register_ddp(model, laconic.Levels(), bypass=False)
    compressor.close()
    told = "^register_ddp: the compressor is closed; wrap the model anew, and register it again$"
    with pytest.raises(PlanError, match=told):
        model(torch.ones(2, 4)).sum().backward()
