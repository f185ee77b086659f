"""The all-reduce: one result by every method, on every rank, whatever is in the tensors."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import laconic
from laconic.errors import CommError, ConfigError, HeadroomError, PlanError
from laconic.exchange.ranks.transport import Channel
from laconic.exchange.ranks.world import one_rank
from laconic.reduce import Reducer
from tests.cases import each
from tests.distributed.ranks import run_ranks
from tests.reduce.campaign import METHODS as CAMPAIGN_METHODS
from tests.reduce.campaign import wrong_ranks
from tests.reduce.cases import METHODS, Case, random_case, same_bits
from tests.reduce.threads import in_threads

ALL_TYPES = ("float32", "float64", "int32", "int64")


def sum_case(case, method, reducer, rank):
    x = torch.from_numpy(case.tensor(rank))
    return x, reducer.sum(x, method)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 6), st.sampled_from(METHODS))
def test_every_method_returns_the_sum_in_rank_order(seed, ranks, method):
    case = random_case(np.random.default_rng(seed), 200_000, ALL_TYPES)
    results = in_threads(ranks, lambda world: sum_case(case, method, Reducer(world), world.rank))
    expected = case.total(ranks)
    assert all(same_bits(x.numpy(), expected) for x, _ in results)
    assert len({(report.method, report.unit) for _, report in results}) == 1  # all agreed


def _many_cases(rank, ranks, seed):
    rng, wrong = np.random.default_rng(seed), []
    reducer = Reducer()
    for number in range(12):
        case = random_case(rng, 300_000, ALL_TYPES)
        method = METHODS[number % len(METHODS)]
        x = torch.from_numpy(case.tensor(rank))
        reducer.sum(x, method)
        if not same_bits(x.numpy(), case.total(ranks)):
            wrong.append((method, case))
    return wrong


def test_real_ranks_agree_to_the_bit():
    assert run_ranks(3, _many_cases, 3) == [[]] * 3


@each("method", METHODS)
@each("words", [0, 1, 2, 63, 65])
def test_tiny_and_empty_tensors(method, words):
    case = Case(words, 0.5, "float32", 1, False, words)
    results = in_threads(3, lambda world: sum_case(case, method, Reducer(world), world.rank))
    assert all(same_bits(x.numpy(), case.total(3)) for x, _ in results)


@each("method", METHODS)
def test_one_rank_that_has_nothing(method):
    def run(world):
        x = torch.zeros(50_000) if world.rank == 1 else torch.ones(50_000)
        Reducer(world).sum(x, method)
        return x

    assert all((x == 2).all() for x in in_threads(3, run))


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 6))
def test_sketches_of_integers_return_the_sum(seed, ranks):
    case = random_case(np.random.default_rng(seed), 200_000, ("int32", "int64"))
    results = in_threads(ranks, lambda world: sum_case(case, "sketch", Reducer(world), world.rank))
    assert all(same_bits(x.numpy(), case.total(ranks)) for x, _ in results)
    assert len({report.stalls for _, report in results}) == 1


def test_sketches_of_floats_sum_what_was_rounded():
    case, step = Case(100_000, 0.02, "float32", 1, False, 3), 2.0**-10

    def small(rank):
        return np.clip(np.nan_to_num(case.tensor(rank)), -100, 100)

    def run(world):
        x = torch.from_numpy(small(world.rank))
        Reducer(world).sum(x, "sketch", step=step)
        return x

    expected = sum(np.rint(small(rank) / step) for rank in range(3)) * step
    assert all(np.array_equal(x.numpy(), expected) for x in in_threads(3, run))


def test_a_sketch_that_does_not_peel_is_made_again_and_then_by_owners(monkeypatch):
    """A sample that promises far too little; and hashes that never peel."""
    from laconic.codecs import Sketch
    from laconic.reduce.ways import sketched

    case = Case(200_000, 0.05, "int32", 1, False, 5)

    def stalls():
        results = in_threads(2, lambda world: sum_case(case, "sketch", Reducer(world), world.rank))
        assert all(same_bits(x.numpy(), case.total(2)) for x, _ in results)
        return {report.stalls for _, report in results}

    assert stalls() == {0}
    real = sketched.sample_fullness
    monkeypatch.setattr(
        sketched,
        "sample_fullness",
        lambda p, x: type(full := real(p, x))(full.ranks, (0.0,) * len(full.union)),
    )
    assert stalls() == {1}
    smallest = Sketch.for_union(200_000, 10)
    monkeypatch.setattr(sketched.Sketch, "for_union", classmethod(lambda *a, **k: smallest))
    assert stalls() == {2}


def test_sums_that_might_not_fit_are_refused_on_all_ranks():
    def run(world):
        x = torch.zeros(1000, dtype=torch.int32)
        x[3] = 2**30 if world.rank == 1 else 5
        with pytest.raises(HeadroomError, match="int32"):
            Reducer(world).sum(x, "sketch")

    in_threads(3, run)


def test_integers_wrap_as_anywhere():
    def run(world):
        x = torch.full((10_000,), 2**31 - 1, dtype=torch.int32)
        Reducer(world).sum(x, "owners")
        return x

    assert all((x == -2).all() for x in in_threads(2, run))


def test_shapes_and_strides_stay():
    def run(world):
        x = torch.arange(24.0).reshape(4, 6).t()[::2].requires_grad_()
        Reducer(world).sum(x, "gather")
        return x

    for x in in_threads(2, run):
        assert torch.equal(x.detach(), 2 * torch.arange(24.0).reshape(4, 6).t()[::2])


def test_alone_nothing_is_sent():
    x = torch.tensor([1.0, -0.0, 3.0])
    report = Reducer(one_rank()).sum(x)
    assert report.bytes_sent == 0
    assert x.tolist() == [1, 0, 3]
    assert not np.signbit(x.numpy()[1])  # as in any sum from 0


def test_what_is_mostly_zero_sends_little():
    case = Case(1_000_000, 0.01, "float32", 1, True, 1)
    sent = {
        method: in_threads(
            4, lambda world, m=method: sum_case(case, m, Reducer(world), world.rank)[1].bytes_sent
        )
        for method in METHODS[1:]
    }
    dense = 2 * 3 / 4 * 4e6
    assert max(sent["dense"]) == pytest.approx(dense, rel=0.001)
    assert max(sent["gather"]) < dense / 35
    assert max(sent["owners"]) < dense / 70  # an index entry is about a quarter of a value


def test_whole_rows_are_found():
    case = Case(1_000_000, 0.01, "float32", 64, False, 1)
    report = in_threads(2, lambda world: sum_case(case, "gather", Reducer(world), world.rank))[0][1]
    assert report.unit == 64


def _in_step(rank, ranks):
    laconic.all_reduce(torch.ones(10))
    try:
        laconic.all_reduce(torch.ones(10 + rank), method="dense")
    except CommError as error:
        return str(error)


def test_ranks_that_sum_different_things_all_raise():
    for message in run_ranks(3, _in_step):
        assert "out of step" in message


@each(
    ("tensor", "method", "message"),
    [
        (torch.ones(3), "ring", "no such method 'ring'"),
        (
            torch.ones(3),
            "union",
            r"^all-reduce: no such method 'union' \(known: auto, dense, gather, owners, sketch\)$",
        ),
        (torch.ones(3, dtype=torch.float16), "auto", "torch.float16"),
        (torch.ones(3, dtype=torch.bool), "auto", "torch.bool"),
        (torch.ones(3), "sketch", "step="),
    ],
)
def test_what_cannot_be_summed_is_refused(tensor, method, message):
    with pytest.raises(ConfigError, match=message):
        Reducer(one_rank()).sum(tensor, method)


class Unused(Channel):
    """A channel on which nothing may travel."""

    def begin(self, digest: int) -> None:
        raise AssertionError("something traveled")


@each(
    ("tensor", "step", "message"),
    [
        (torch.ones(3, dtype=torch.int64), 0.5, "step: expected none for torch.int64, which is summed as it is, got 0.5; leave it out"),
        (torch.eye(3).to_sparse(), None, "expected a dense tensor, got one of torch.sparse_coo; sum tensor.to_dense(), or its values"),
        (torch.ones(1).expand(3), None, "expected memory of its own for every entry, got shape (3,) with strides (0,); sum tensor.contiguous()"),
        (torch.arange(5.0).unfold(0, 3, 1), None, "expected memory of its own for every entry, got shape (3, 3) with strides (1, 1); sum tensor.contiguous()"),
    ],
)  # fmt: skip
@each("method", ["dense", "sketch"])
def test_a_tensor_that_has_no_place_for_its_sum_is_refused_before_anything_travels(
    tensor, step, message, method
):
    reducer = Reducer(one_rank())
    reducer.channel = Unused(reducer.channel.transport)
    with pytest.raises(ConfigError) as caught:
        reducer.sum(tensor, method, step=step)
    assert str(caught.value) == f"all-reduce: {message}"


@each(
    "tensor", [torch.ones(3, 4).T, torch.ones(4, 6)[:, ::2], torch.ones(1, 3).expand(1, 3), torch.ones(0, 3)]
)
def test_views_whose_entries_are_apart_are_summed(tensor):
    assert Reducer(one_rank()).sum(tensor, "dense").method == "dense"


def test_without_a_process_group_there_is_a_clear_error():
    with pytest.raises(PlanError, match="init_process_group"):
        laconic.all_reduce(torch.ones(3))


@each("number", range(24))
def test_a_few_of_the_campaign(number):
    """``python -m tests.reduce.campaign --cases 10000`` does the rest."""
    rng = np.random.default_rng(number)
    case = random_case(rng, 100_000, ("int32", "int64"))
    wrong, _ = wrong_ranks(case, int(rng.integers(1, 17)), CAMPAIGN_METHODS[number % len(CAMPAIGN_METHODS)])
    assert wrong == 0
