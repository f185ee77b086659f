"""Sums of gradients that travel within a bound."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from laconic import Bounded, Cast, Lossless
from laconic.reduce import Choice, Levels, Reducer
from tests.cases import each
from tests.reduce.threads import in_threads

LAYERS = np.array([0, 5000, 5001, 9000, 30000])
BOUND = 0.35
CODEC = Bounded(BOUND, relative_to="rms", rounding="unbiased")


def gradient(rank):
    rng = np.random.default_rng(rank)
    return (rng.standard_normal(LAYERS[-1]) * np.repeat([1, 1e-4, 1e3, 0.01], np.diff(LAYERS))).astype(
        np.float32
    )


def summed(ranks, steps=1, codec=CODEC):
    def run(world):
        reducer, results, mine = Reducer(world), [], gradient(world.rank)
        for step in range(steps):
            x = mine.copy()
            reducer.sum_coded(x, LAYERS, codec, step)
            results.append(x)
        return results, reducer.channel.bytes_sent / steps

    return in_threads(ranks, run)


@each("ranks", [1, 2, 3, 5])
def test_all_ranks_get_the_same_within_what_bounds_allow(ranks):
    results = summed(ranks)
    assert all(x[0].tobytes() == results[0][0][0].tobytes() for x, _ in results)
    exact = sum(gradient(rank).astype(np.float64) for rank in range(ranks))
    error = np.abs(results[0][0][0] - exact)
    for start, end in pairwise(LAYERS):
        # one bound of each rank's gradient, and one of the sum where owners send it; segments' own RMS vary a little
        of_ranks = sum(np.sqrt(np.mean(gradient(rank)[start:end] ** 2.0)) for rank in range(ranks))
        of_sum = np.sqrt(np.mean(exact[start:end] ** 2)) + BOUND * of_ranks
        allowed = 0 if ranks == 1 else BOUND * (of_ranks + (of_sum if ranks > 2 else 0)) * 1.3
        assert error[start:end].max() <= allowed + 1e-30


@each("ranks", [2, 3])
def test_errors_average_out(ranks):
    results, _ = summed(ranks, steps=49)[0]
    exact = sum(gradient(rank).astype(np.float64) for rank in range(ranks))
    mean = np.mean(results, axis=0, dtype=np.float64)
    one, many = np.abs(results[0] - exact), np.abs(mean - exact)
    large = slice(LAYERS[2], LAYERS[3])
    assert many[large].mean() < one[large].mean() / 5  # sqrt(49) is 7


def test_few_bits_are_sent_however_many_ranks():
    dense = 4 * LAYERS[-1]
    for ranks in (2, 4):
        ring = 2 * (ranks - 1) / ranks * dense
        assert ring / summed(ranks)[0][1] > 8


def test_any_codec_will_do():
    exact = gradient(0) + gradient(1)
    for (x,), _ in summed(2, codec=Cast("fp32")):
        assert np.array_equal(x, exact)


@each("ranks", [2, 3])
def test_levels_keep_every_entry_within_a_ninth(ranks):
    results = summed(ranks, codec=Levels())
    assert all(x[0].tobytes() == results[0][0][0].tobytes() for x, _ in results)
    exact = sum(gradient(rank).astype(np.float64) for rank in range(ranks))
    sizes = sum(np.abs(gradient(rank).astype(np.float64)) for rank in range(ranks))
    rounds = 1 if ranks == 2 else 2  # owners round sums again
    assert (np.abs(results[0][0][0] - exact) <= rounds * sizes / 8).all()
    ring = 2 * (ranks - 1) / ranks * 4 * LAYERS[-1]
    assert ring / results[0][1] > 4


@each("ranks", [1, 2, 3, 5])
def test_lossless_sums_have_the_bits_of_exact_ones_and_are_smaller(ranks):
    def run(world):
        x = gradient(world.rank)
        x[np.random.default_rng(9).random(len(x)) < 0.6] = 0.0
        x[:4] = [-0.0, np.nan, np.inf, 1e-42]
        exact, reducer = x.copy(), Reducer(world)
        reducer.sum_as(exact, Choice("dense"))
        dense = reducer.channel.bytes_sent
        reducer.sum_coded(x, LAYERS, Lossless(), 0)
        return x, exact, dense, reducer.channel.bytes_sent - dense

    for x, exact, dense, coded in in_threads(ranks, run):
        if ranks > 1:  # nothing is added, and -0.0 stays, where there is one rank
            assert x.tobytes() == exact.tobytes()
            assert coded < 0.55 * dense


def test_a_layer_that_is_not_finite_shows_and_others_do_not_suffer():
    def run(world):
        x = gradient(world.rank)
        if world.rank == 1:
            x[4000] = np.nan
        Reducer(world).sum_coded(x, LAYERS, Levels(), 0)
        return x

    for x in in_threads(2, run):
        assert np.isnan(x[:5000]).all()
        assert np.isfinite(x[5000:]).all()
