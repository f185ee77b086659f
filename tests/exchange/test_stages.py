"""Ranks that share a thread take every stage in turn; a message that nobody sent is an error at once."""

from __future__ import annotations

import numpy as np
import pytest

from laconic.errors import CommError
from laconic.exchange.ranks.heads import Head
from laconic.exchange.ranks.stages import finish, in_step
from laconic.exchange.ranks.transport import Message
from laconic.exchange.ranks.worker import RefusedBatchError
from laconic.exchange.ranks.world import LocalWorld


def counted(rank, stages, seen):
    for stage in range(stages):
        seen.append((stage, rank))
        yield
    return rank


def test_no_rank_begins_a_stage_before_all_have_done_the_last():
    seen = []
    assert finish(in_step([counted(rank, 3, seen) for rank in range(2)])) == [0, 1]
    assert seen == [(stage, rank) for stage in range(3) for rank in range(2)]


def test_ranks_may_have_fewer_stages_and_there_may_be_no_ranks():
    assert finish(in_step([counted(0, 1, []), counted(1, 4, [])])) == [0, 1]
    assert finish(in_step([])) == []


def test_all_ranks_get_to_the_end_of_the_stage_in_which_one_refuses():
    seen = []

    def refusing(rank):
        yield
        seen.append(rank)
        raise RefusedBatchError(f"rank {rank}")

    with pytest.raises(RefusedBatchError, match=r"^rank 0$"):
        finish(in_step([refusing(rank) for rank in range(3)]))
    assert seen == [0, 1, 2]


def test_one_thread_swaps_messages_of_many_ranks():
    world, sizes_N = LocalWorld(3, patience_s=0), np.ones(3, np.int64)

    def swap(rank):
        transport, heard = world.of(rank).transport("numbers"), np.zeros(3, np.int64)
        nothing = np.zeros((3, 0), np.int64)
        transport.send(Head(7, 0, rank, nothing, nothing), Message.same(np.array([10 * rank]), 3))
        yield
        samples = transport.hear().samples_N.tolist()
        transport.receive(heard, sizes_N)
        swapped = np.zeros(3, np.int64)
        end = transport.begin_swap(swapped, Message.each(rank + 10 * np.arange(3), sizes_N), sizes_N)
        yield
        end()
        return samples, heard.tolist(), swapped.tolist()

    found = finish(in_step([swap(rank) for rank in range(3)]))
    assert found == [([0, 1, 2], [0, 10, 20], [10 * rank + other for other in range(3)]) for rank in range(3)]


def test_a_rank_of_one_thread_does_not_wait_for_what_was_not_sent():
    world, nothing = LocalWorld(2, patience_s=0), np.zeros((2, 0), np.int64)
    transport = world.of(0).transport("numbers")
    transport.send(Head(0, 0, 0, nothing, nothing))
    with pytest.raises(CommError, match=r"^numbers: expected a message of rank 1 within 0 s, got none"):
        transport.hear()
