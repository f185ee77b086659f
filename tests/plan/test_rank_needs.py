"""Descriptors and memory that a rank needs, against the transport that takes the memory."""

from __future__ import annotations

import pytest

from laconic.errors import ConfigError
from laconic.exchange.ranks.posted import PostedTransport
from laconic.plan.rank_needs import rank_needs
from tests.cases import each

TRANSPORTS = 5  # ids, rows, two lanes of dense gradients, values of all ranks


def test_a_limit_of_1024_descriptors_ends_at_506_ranks():
    assert rank_needs(506).descriptors <= 1024 < rank_needs(507).descriptors


@each("ranks", [2, 8, 64, 65, 1024, 1025])
def test_buffers_are_those_of_a_transport(ranks):
    transport = PostedTransport("rows", 0, ranks, None, 0)
    buffers = [*transport._incoming.values(), *transport._outgoing.values()]
    needs = rank_needs(ranks)
    assert needs.least_buffer_bytes == TRANSPORTS * sum(map(len, buffers))
    grown = [transport._grown(buffer, 1 << 30) for buffer in buffers]
    assert needs.most_buffer_bytes == TRANSPORTS * sum(map(len, grown))


def test_one_rank_has_nobody_to_hear_from():
    alone = rank_needs(1)
    assert (alone.least_buffer_bytes, alone.most_buffer_bytes) == (0, 0)
    with pytest.raises(ConfigError, match="at least one rank, got 0"):
        rank_needs(0)
