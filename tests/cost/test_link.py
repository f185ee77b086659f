"""Links and costs that cannot be, and formulas against what they stand for."""

from __future__ import annotations

import math

import numpy as np
import pytest

from laconic.cost.link import CodecCost, Link, message_bytes, owners_sum, ring_bytes, step_s
from laconic.errors import ConfigError
from laconic.exchange.ranks.heads import Head
from laconic.exchange.ranks.world import LocalWorld
from tests.cases import each


@each(("latency_s", "bytes_per_s"), [(-1, 1), (0, 0), (math.nan, 1), (0, math.inf)])
def test_a_link_that_cannot_be_is_refused(latency_s, bytes_per_s):
    with pytest.raises(
        ConfigError, match=r"^link: expected a latency >= 0 and a bandwidth > 0, both finite, got"
    ):
        Link(latency_s, bytes_per_s)


@each("numbers", [(-1, 0, 0), (0, math.nan, 0), (0, 0, math.inf)])
def test_a_cost_that_cannot_be_is_refused(numbers):
    with pytest.raises(
        ConfigError, match=r"^codec cost: expected finite numbers >= 0, got .* measure it again$"
    ):
        CodecCost(*numbers)


@pytest.mark.parametrize(("blocks", "ranks"), [(1, 2), (26, 8), (200, 3)])
def test_heads_take_about_what_a_transport_sends(blocks, ranks):
    """Sizes of 0.5 to 8 kB; within four bytes for what turns, samples and bits take."""
    transport, rng = LocalWorld(ranks).of(0).transport("rows"), np.random.default_rng(0)
    sizes_NK = rng.integers(500, 8000, (ranks, blocks))
    digest = 0x7123_4567_89AB_CDEF
    sent = transport.send(Head(300, digest, 1024, sizes_NK // 50, sizes_NK, counts_known=True))
    assert sent == transport.bytes_sent
    assert sent == pytest.approx(message_bytes(blocks, ranks), rel=0.05, abs=4 * (ranks - 1))


def test_a_ring_sends_each_part_twice_but_for_a_rank_s_own():
    assert ring_bytes(1000, 4) == 1500
    assert ring_bytes(1000, 1) == 0
    assert int(ring_bytes(3 * 10**9, 3)) == 4 * 10**9  # exact where ranks divide it


@pytest.mark.parametrize("ranks", [2, 3, 8, 64])
def test_owners_sum_where_that_never_sends_much_more(ranks):
    rows = 10.0
    for union in np.linspace(rows, ranks * rows, 20):
        everyone, owners = (ranks - 1) * rows, (ranks - 1) / ranks * (rows + union)
        assert owners <= everyone * (1 + 1 / ranks) if owners_sum(ranks) else owners >= everyone


def test_only_what_travels_beyond_the_overlap_makes_a_step_longer():
    assert step_s(5.0, 3.0, 4.0) == 5.0
    assert step_s(5.0, np.array([3.0, 6.0]), 4.0).tolist() == [5.0, 7.0]
