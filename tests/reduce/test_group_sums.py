"""``laconic.all_reduce`` with a process group, and without waiting for it."""

from __future__ import annotations

import gc
import re
import threading
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist

import laconic
from laconic.errors import CommError, ConfigError, HeadroomError, PlanError
from tests.distributed.ranks import run_ranks


def mine(rank, words=20_000, seed=0):
    """Every tenth word of a rank's tensor is not zero."""
    generator = torch.Generator().manual_seed(100 * seed + rank)
    return torch.randn(words, generator=generator) * (torch.rand(words, generator=generator) < 0.1)


def total(ranks, seed=0):
    """``0 + x0 + x1 + ...``, as every method adds."""
    summed = torch.zeros(20_000)
    for rank in ranks:
        summed += mine(rank, seed=seed)
    return summed


def _part_of_the_ranks(rank, ranks):
    group = dist.new_group([0, 2])
    if rank not in (0, 2):
        with pytest.raises(PlanError, match="all-reduce: this rank is not in the group"):
            laconic.all_reduce(mine(rank), group=group)
        return True
    return torch.equal(laconic.all_reduce(mine(rank), "owners", group), total([0, 2]))


def test_a_group_of_some_ranks_sums_over_them_alone():
    assert run_ranks(3, _part_of_the_ranks) == [True] * 3


def _two_groups(rank, ranks):
    pairs = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    pair = rank // 2
    works = []
    for seed in range(3):
        of_all, of_two = mine(rank, seed=seed), mine(rank, seed=10 + seed)
        works.append((laconic.all_reduce(of_all, async_op=True), of_all, total(range(ranks), seed)))
        works.append(
            (
                laconic.all_reduce(of_two, group=pairs[pair], async_op=True),
                of_two,
                total([2 * pair, 2 * pair + 1], 10 + seed),
            )
        )
    return [work.wait() and torch.equal(found, expected) for work, found, expected in works]


def test_two_groups_sum_at_once():
    assert run_ranks(4, _two_groups) == [[True] * 6] * 4


def _in_flight(rank, ranks):
    tensors = [mine(rank, seed=seed) for seed in range(6)]
    works = [laconic.all_reduce(tensor, async_op=True) for tensor in tensors]
    after = laconic.all_reduce(mine(rank, seed=6))  # waits for those before it
    assert all(work.is_completed() for work in works)
    assert works[0].get_future().wait()[0] is tensors[0]
    assert repr(works[0]) == "SumWork((20000,), torch.float32, done)"
    return all(torch.equal(x, total(range(ranks), s)) for s, x in enumerate([*tensors, after]))


def test_sums_under_way_keep_their_order():
    assert run_ranks(3, _in_flight) == [True] * 3


def _dead_peer(rank, ranks):
    group = dist.new_group(range(ranks), timeout=timedelta(seconds=20))
    laconic.all_reduce(mine(rank), "dense", group)
    if rank == 1:
        return None  # its process ends
    work = laconic.all_reduce(mine(rank), "dense", group, async_op=True)
    following = laconic.all_reduce(mine(rank), "dense", group, async_op=True)
    said = []
    for wait in (work.wait, following.wait, work.get_future().wait):
        with pytest.raises(CommError) as caught:
            wait()
        said.append(str(caught.value))
    return said


def test_a_lost_peer_comes_out_of_wait():
    said, _ = run_ranks(2, _dead_peer)
    assert all(re.match(r"all-reduce, turn \d+: rank 0 lost a peer", text) for text in said)


def _refused(rank, ranks):
    """What all ranks refuse alike leaves them in step."""
    big = torch.full((50,), 2**31 - 1, dtype=torch.int32)
    work = laconic.all_reduce(big, "sketch", async_op=True)
    with pytest.raises(HeadroomError):
        work.wait()
    with pytest.raises(HeadroomError):
        work.get_future().wait()
    with pytest.raises(ConfigError, match="no such method 'ring'"):  # at once
        laconic.all_reduce(mine(rank), "ring", async_op=True)
    return torch.equal(laconic.all_reduce(mine(rank)), total(range(ranks)))


def test_what_all_ranks_refuse_does_not_stop_the_sums_that_follow():
    assert run_ranks(2, _refused) == [True, True]


def threads():
    return [thread for thread in threading.enumerate() if thread.name == "laconic-sums"]


@pytest.fixture
def _one_rank():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    if dist.is_initialized():
        dist.destroy_process_group()


@pytest.mark.usefixtures("_one_rank")
def test_alone_a_sum_without_waiting_is_the_tensor():
    work = laconic.all_reduce(torch.tensor([-0.0, 2.0]), async_op=True)
    assert work.wait(timedelta(seconds=60))
    assert torch.equal(work.get_future().wait()[0], torch.tensor([0.0, 2.0]))


@pytest.mark.usefixtures("_one_rank")
def test_a_destroyed_group_leaves_nothing_behind():
    before, groups = len(threads()), len(dist.distributed_c10d._world.pg_map)
    group = dist.new_group([0])
    assert laconic.all_reduce(torch.ones(3), group=group, async_op=True).wait()
    (thread,) = threads()[before:]
    dist.destroy_process_group(group)
    with pytest.raises(PlanError, match=r"expected a process group that exists, got .* destroyed"):
        laconic.all_reduce(torch.ones(3), group=group)
    del group
    gc.collect()
    thread.join(60)
    assert not thread.is_alive()
    assert len(dist.distributed_c10d._world.pg_map) == groups


def _released(rank, ranks):
    known = dist.distributed_c10d._world.pg_map
    group = dist.new_group([0, 1])
    before = len(known)
    laconic.all_reduce(torch.ones(3), group=group)
    opened = len(known) - before
    dist.destroy_process_group(group)
    del group
    gc.collect()
    return opened, len(known) - before


def test_connections_of_a_destroyed_group_are_closed():
    assert run_ranks(2, _released) == [(1, -1)] * 2


def _slow(rank, ranks):
    if rank == 1:
        laconic.all_reduce(torch.ones(3), "dense")
        dist.barrier()  # until the other has given up
        return laconic.all_reduce(torch.ones(3), "dense").tolist()
    laconic.all_reduce(torch.ones(3), "dense")
    work = laconic.all_reduce(torch.ones(3), "dense", async_op=True)
    with pytest.raises(CommError, match=r"expected the sum within 0.01 s, got none yet"):
        work.wait(timedelta(milliseconds=10))
    assert not work.is_completed()
    dist.barrier()
    work.wait()
    return [2.0, 2.0, 2.0]


def test_whoever_waits_with_a_limit_gets_an_error_and_may_wait_again():
    assert run_ranks(2, _slow) == [[2.0, 2.0, 2.0]] * 2
