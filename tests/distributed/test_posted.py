"""Messages of any length into receives that were posted before."""

import time

import numpy as np
import pytest
import torch.distributed as dist

from laconic.errors import CommError
from laconic.exchange.ranks.heads import Head
from laconic.exchange.ranks.transport import Message
from laconic.exchange.ranks.world import GroupWorld
from tests.distributed.ranks import run_ranks

SIZES = (0, 1, 1000, 65_536 - 40, 65_536, 100_000, 3_000_000, 5, 0, 700_001, 65_537)


def message(source, target, turn, size):
    """Values that say whose they are."""
    return np.arange(size, dtype=np.int64) * 1000 + 100 * turn + 10 * source + target


def exchange_sizes(rank, ranks):
    transport = GroupWorld().transport("test")
    for turn, base in enumerate(SIZES):
        # two messages a turn, of other lengths for every pair
        size = np.array([[base // 8 + 7 * s + t for t in range(ranks)] for s in range(ranks)])
        np.fill_diagonal(size, 0)
        if turn % 3 == 2:
            size[0, :] = 0
        parts = [message(rank, t, turn, size[rank, t]) for t in range(ranks)]
        first = np.concatenate(parts)
        second = np.concatenate([part[::2].astype(np.float32) for part in parts])
        halves = -(-size // 2)
        heads = np.tile(size[rank][:, None], (1, 3))
        messages = (Message.each(first, size[rank]), Message.each(second, halves[rank]))
        heard = transport.announce(Head(turn, 77, rank, heads, heads), *messages)
        others = np.arange(ranks) != rank
        np.testing.assert_array_equal(heard.counts_NK[others, 0], size[others, rank])
        assert heard.samples_N.tolist() == list(range(ranks))
        ours, half = np.empty(size[:, rank].sum(), np.int64), np.empty(halves[:, rank].sum(), np.float32)
        transport.receive(ours, size[:, rank])
        transport.receive(half, halves[:, rank])
        expected = [message(s, rank, turn, size[s, rank]) for s in range(ranks)]
        np.testing.assert_array_equal(ours, np.concatenate(expected))
        np.testing.assert_array_equal(
            half, np.concatenate([part[::2].astype(np.float32) for part in expected])
        )
        if turn % 4 == 0:  # what is not announced goes another way, and confuses nobody
            theirs = np.full(ranks, -1)
            transport.swap(
                theirs, Message.each(np.full(ranks, rank), np.ones(ranks, int)), np.ones(ranks, int)
            )
            assert theirs.tolist() == list(range(ranks))
        if turn % 5 == 0:
            nothing = np.zeros((ranks, 0), np.int64)
            transport.announce(Head(turn, 78, 0, nothing, nothing))
    transport.close()
    return True


def test_all_lengths_arrive():
    assert run_ranks(3, exchange_sizes) == [True] * 3


def heads_longer_than_the_receive(rank, ranks):
    transport = GroupWorld().transport("test")
    numbers = np.arange(ranks * 20_000).reshape(ranks, -1) + rank
    message = Message.same(np.full(10, rank, np.uint8), ranks, but=rank)
    heard = transport.announce(Head(0, 1, 0, numbers, numbers), message)
    other = 1 - rank
    np.testing.assert_array_equal(heard.counts_NK[other], np.arange(20_000) + rank * 20_000 + other)
    theirs = np.zeros(10, np.uint8)
    transport.receive(theirs, np.where(np.arange(ranks) == rank, 0, 10))
    return theirs.tolist()


def test_heads_may_be_longer_than_the_receive():
    assert run_ranks(2, heads_longer_than_the_receive) == [[1] * 10, [0] * 10]


def disagree(rank, ranks):
    transport = GroupWorld().transport("test")
    nothing = np.zeros((ranks, 0), np.int64)
    message = Message.same(np.zeros(200_000, np.uint8), ranks)
    with pytest.raises(CommError, match="out of step"):
        transport.announce(Head(rank, 1, 0, nothing, nothing), message)
    dist.barrier()
    return True


def test_ranks_that_are_out_of_step_raise_and_do_not_hang():
    assert run_ranks(2, disagree) == [True, True]


def last_turn_of_a_slow_rank(rank, ranks):
    transport = GroupWorld().transport("test")
    nothing, ten = np.zeros((ranks, 0), np.int64), np.where(np.arange(ranks) == rank, 0, 10)
    message = Message.same(np.full(10, rank, np.uint8), ranks, but=rank)
    transport.announce(Head(0, 1, 0, nothing, nothing), message)
    if rank == 0:
        time.sleep(0.4)  # meanwhile the others are done, and gone
    theirs = np.zeros(10 * (ranks - 1), np.uint8)
    transport.receive(theirs, ten)
    if rank == 0:
        with pytest.raises(CommError, match="lost a peer"):
            transport.announce(Head(1, 1, 0, nothing, nothing))
    return theirs[::10].tolist()


def test_a_rank_may_leave_after_its_last_turn():
    assert run_ranks(3, last_turn_of_a_slow_rank) == [[1, 2], [0, 2], [0, 1]]
