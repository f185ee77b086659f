"""The workbench: two halves of the held-out samples, and samples taken from others."""

from __future__ import annotations

import pytest
import torch

from laconic.data import Samples, Synthetic, SyntheticSettings
from laconic.errors import ConfigError
from laconic.lookups import Lookups
from laconic.quantize.search.workbench import BATCH, divide, joined, labels, select, thinned


def source(samples=9000, **changes):
    return Synthetic(
        SyntheticSettings(
            rows=(50, 9, 300), bags=(1, 4, 1), dense=2, samples=64, eval_samples=samples, **changes
        )
    )


def keys(batches):
    """Something of each sample that no other has."""
    return {tuple(row.tolist()) for samples in batches for row in samples.dense_BF}


def test_no_sample_is_in_both_parts_and_none_is_lost():
    parts = divide(source(), most=10**9)
    search, verification = keys(parts.search), keys(parts.verification)
    assert not search & verification
    assert len(search) + len(verification) == 9000
    assert abs(len(search) - 4500) < 5 * 47  # five standard deviations


def test_the_parts_are_the_same_at_every_run_and_others_by_another_seed():
    assert keys(divide(source(), most=10**9).search) == keys(divide(source(), most=10**9).search)
    assert keys(divide(source(), most=10**9).search) != keys(divide(source(), most=10**9, seed=1).search)


def test_fewer_samples_are_drawn_when_fewer_are_asked_for():
    whole, some = divide(source(), most=10**9), divide(source(), most=2000)
    count = len(labels(some.search))
    assert abs(count - 1000) < 5 * 32
    assert keys(some.search) <= keys(whole.search) | keys(whole.verification)
    assert not keys(some.search) & keys(some.verification)


def test_what_is_left_is_in_neither_part():
    left = []
    some = divide(source(), most=2000, left=left.append)
    rest, drawn = keys(left), keys(some.search) | keys(some.verification)
    assert not rest & drawn
    assert len(rest) + len(drawn) == 9000


def test_selected_samples_keep_their_bags():
    lookups = Lookups(torch.tensor([1, 2, 3, 4, 5, 6]), torch.tensor([0, 2, 2, 3, 3, 5, 6]), tables=2)
    samples = Samples(torch.tensor([0.0, 1.0, 0.0]), torch.arange(6.0).reshape(3, 2), lookups)
    chosen = select(samples, torch.tensor([2, 0]))
    assert chosen.label_B.tolist() == [0, 0]
    assert chosen.dense_BF.tolist() == [[4, 5], [0, 1]]
    assert chosen.lookups.ids_L.tolist() == [3, 1, 2, 6]
    assert chosen.lookups.offsets.tolist() == [0, 1, 3, 4, 4]
    nothing = select(samples, torch.tensor([], dtype=torch.int64))
    assert (len(nothing), nothing.lookups.offsets.tolist()) == (0, [0])


def test_bags_of_a_table_begin_at_their_offsets():
    lookups = Lookups(torch.tensor([1, 2, 3, 4, 5, 6]), torch.tensor([0, 2, 2, 3, 3, 5, 6]), tables=2)
    first, second = (tuple(part.tolist() for part in lookups.table(t)) for t in range(2))
    assert first == ([1, 2, 3], [0, 2, 2, 3])
    assert second == ([4, 5, 6], [0, 0, 2, 3])


@pytest.mark.parametrize("samples", [0, 100])
def test_too_few_samples_are_refused(samples):
    with pytest.raises(ConfigError, match=f"the search half of {samples} evaluation samples has"):
        divide(source(samples), most=10**9)


def test_joined_samples_are_those_of_the_whole():
    whole = joined(list(divide(source(2000), most=10**9).search))
    parts = [select(whole, torch.arange(begin, min(begin + 300, len(whole)))) for begin in (0, 300, 600)]
    again, expected = joined(parts), select(whole, torch.arange(900))
    assert torch.equal(again.lookups.ids_L, expected.lookups.ids_L)
    assert torch.equal(again.lookups.offsets, expected.lookups.offsets)
    assert torch.equal(again.dense_BF, expected.dense_BF)


def test_thinned_samples_are_spread_over_all_batches():
    search = divide(source(30_000), most=10**9).search
    some = thinned(search, 1000)
    whole_B = joined(list(search)).dense_BF
    every = -(-len(whole_B) // 1000)
    assert torch.equal(joined(list(some)).dense_BF, whole_B[::every])
    assert all(BATCH <= len(part) < 2 * BATCH for part in some[:-1])
    assert 1 < len(some) <= 1 + 1000 // BATCH
