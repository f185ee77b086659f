"""Floats summed as integers of a shared step."""

from __future__ import annotations

import numpy as np

from laconic.reduce import Reducer
from tests.cases import each
from tests.reduce.threads import in_threads


class Adder:
    """A network in memory: it adds what all ranks hand in, over a second wire."""

    def __init__(self, world) -> None:
        self._reducer = Reducer(world, "network")
        self.bytes_sent = 0

    def add(self, values) -> None:
        import torch

        self._reducer.sum(torch.from_numpy(values), "dense")
        self.bytes_sent += values.nbytes

    def unite(self, words) -> None:
        from laconic.reduce.ways.dense import unite_dense

        self._reducer.channel.begin(1)
        unite_dense(self._reducer.channel, words)
        self.bytes_sent += words.nbytes


def gradient(rank, density):
    rng = np.random.default_rng(rank)
    x = rng.standard_normal(40_000) * 10.0 ** rng.integers(-5, 3, 40_000)
    return np.where(rng.random(40_000) < density, x, 0).astype(np.float32)


def summed(ranks, density, network):
    def run(world):
        x = gradient(world.rank, density)
        Reducer(world).sum_rounded(x, Adder(world) if network else None)
        return x

    return in_threads(ranks, run)


@each("density", [0.0, 0.02, 1.0])
@each("ranks", [1, 2, 5])
def test_sums_are_within_the_step_whoever_adds(ranks, density):
    by_ranks, by_network = summed(ranks, density, False), summed(ranks, density, True)
    assert all(x.tobytes() == by_ranks[0].tobytes() for x in by_ranks + by_network)
    exact = sum(gradient(rank, density).astype(np.float64) for rank in range(ranks))
    largest = max(np.abs(gradient(rank, density)).max() for rank in range(ranks))
    error = np.abs(by_ranks[0] - exact)
    assert (error <= ranks * largest * ranks * 2.0**-30 + np.abs(exact) * 2.0**-23).all()


@each("odd", [np.nan, np.inf])
def test_what_is_not_finite_is_summed_as_floats(odd):
    def run(world):
        x = gradient(world.rank, 1.0)
        if world.rank == 1:
            x[7] = odd
        Reducer(world).sum_rounded(x)
        return x

    expected = gradient(0, 1.0) + gradient(1, 1.0)
    for x in in_threads(2, run):
        assert not np.isfinite(x[7])
        assert np.array_equal(np.delete(x, 7), np.delete(expected, 7))
