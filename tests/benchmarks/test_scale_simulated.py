"""The simulator says of many ranks what one rank with an echo sends: bytes, not seconds.

Where rows travel as they are, only distinct rows, ids and heads are predicted, all from Zipf's law.
Bounded rows are trained ones here and normal ones in the simulator, so that their bytes differ by
more. The echo is rank 0, whose share of the likeliest rows is not quite the mean.
"""

from __future__ import annotations

import pytest

from benchmarks.scale import Scale, measure_echo
from laconic.adapt.compression import Compression
from laconic.codecs import BoundedRows
from laconic.plan.scenario import Scenario
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


def test_the_simulator_has_the_bounds_that_training_has():
    usual, scenario = Compression(), Scenario()
    assert isinstance(usual.rows, BoundedRows)
    assert isinstance(usual.gradients, BoundedRows)
    assert (scenario.bound, scenario.gradient_bound) == (usual.rows.bound, usual.gradients.bound)
    assert (usual.rows.relative_to, usual.gradients.relative_to) == ("range", "rms")
