"""Loss, duplication and reordering: a seeded relay between workers and the aggregator, in both directions."""

from __future__ import annotations

import numpy as np
import pytest

from tests.reduce.network.conftest import JOB, together
from tests.reduce.network.relay import Relay


@pytest.mark.parametrize(
    "shares",
    [
        {"loss": 0.01, "duplication": 0.01, "reordering": 0.01, "seed": 0},
        {"loss": 0.0, "duplication": 0.5, "reordering": 0.3, "seed": 1},
        {"loss": 0.2, "duplication": 0.1, "reordering": 0.1, "seed": 2},
    ],
    ids=lambda shares: "-".join(map(str, shares.values())),
)
def test_sums_are_right_whatever_happens_to_packets(aggregator, shares):
    aggregator.register(JOB, 3)
    generator = np.random.default_rng(shares["seed"])
    arrays = [generator.integers(-(2**20), 2**20, 40_000, dtype=np.int32) for _ in range(3)]
    expected = np.sum(arrays, axis=0, dtype=np.int64)
    with Relay(aggregator.address.pair, 3, **shares) as relay:
        for outcome in together(relay.addresses, arrays):
            assert not isinstance(outcome, Exception), outcome
    for array in arrays:
        assert np.array_equal(array, expected)
    assert relay.lost > 0 or shares["loss"] == 0


def test_many_short_rounds_survive_loss(aggregator):
    """A late packet of one round must not enter the next."""
    aggregator.register(JOB, 2)
    arrays = [np.ones(1000, dtype=np.int32) for _ in range(2)]
    with Relay(aggregator.address.pair, 2, loss=0.03, duplication=0.3, reordering=0.3, seed=5) as relay:
        for outcome in together(relay.addresses, arrays, rounds=6):
            assert not isinstance(outcome, Exception), outcome
    assert all((array == 1 << 6).all() for array in arrays)
