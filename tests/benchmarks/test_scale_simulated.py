"""The simulator says of many ranks what one rank with an echo sends: bytes, not seconds.

Where rows travel as they are, only distinct rows, ids and heads are predicted, all from Zipf's law.
Bounded rows are trained ones here and normal ones in the simulator, so that their bytes differ by
more. The echo is rank 0, whose share of the likeliest rows is not quite the mean.
"""

from __future__ import annotations

from contextlib import suppress

import numpy as np
import pytest

from benchmarks.scale import EchoWorld, Scale, measure_echo
from laconic.adapt.compression import Compression
from laconic.codecs import BoundedRows
from laconic.cost.link import piece_heads_bytes
from laconic.exchange.ranks.transport import Channel
from laconic.plan.scenario import Scenario
from laconic.reduce.ways.coded import Levels, sum_coded
from tests.cases import each

RANKS = (8, 32, 256)
WITHIN = {"exact": 0.03, "laconic": 0.15}
ANNOUNCED_WITHIN = 0.10


@pytest.fixture(scope="module")
def rows():
    jobs = [
        Scale(ranks=n, tables=26, batch=64, cap=20_000, method=method) for n in RANKS for method in WITHIN
    ]
    return {(job.ranks, job.method): measure_echo(job) for job in jobs}


@each("method", WITHIN)
@each("ranks", RANKS)
def test_simulated_bytes_are_those_that_an_echo_measures(rows, ranks, method):
    row = rows[ranks, method]
    assert row.simulated_bytes == pytest.approx(row.bytes, rel=WITHIN[method])


@each("method", WITHIN)
@each("ranks", RANKS)
def test_simulated_announcements_are_those_that_an_echo_measures(rows, ranks, method):
    row = rows[ranks, method]
    assert row.simulated_announcement_bytes == pytest.approx(row.announcement_bytes, rel=ANNOUNCED_WITHIN)


@each("ranks", (8, 64, 512))
def test_heads_of_dense_gradients_are_those_that_an_echo_measures(ranks):
    """Segments are alike, so that the echo of one is what another rank sends."""
    values = np.tile(np.random.default_rng(0).standard_normal(200_000 // ranks, np.float32), ranks)
    transport = EchoWorld(ranks).transport("sums")
    send, announced = transport.send, []
    transport.send = lambda *sent: announced.append(send(*sent)) or announced[-1]
    channel = Channel(transport)
    channel.begin(1 << 62)
    with suppress(ValueError):  # owners' sums come back as this rank's own, after both messages left
        sum_coded(channel, values, np.array([0, len(values)]), Levels(), 1)
    assert len(announced) == 2
    piece_bytes = (transport.bytes_sent - sum(announced)) / 2 / ranks
    # heads of sums have no samples, and here a turn of one byte: 5 of 24 bytes fewer than reckoned
    assert piece_heads_bytes(ranks, piece_bytes) == pytest.approx(sum(announced), rel=0.3)


def test_the_simulator_has_the_bounds_that_training_has():
    usual, scenario = Compression(), Scenario()
    assert isinstance(usual.rows, BoundedRows)
    assert isinstance(usual.gradients, BoundedRows)
    assert (scenario.bound, scenario.gradient_bound) == (usual.rows.bound, usual.gradients.bound)
    assert (usual.rows.relative_to, usual.gradients.relative_to) == ("range", "rms")
