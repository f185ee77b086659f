"""Values of all ranks on every rank, and of all ranks made into one."""

from __future__ import annotations

import pytest

from laconic.train.ranks import Ranks
from tests.distributed.ranks import run_ranks


def tell(rank, count):
    ranks = Ranks.joined()
    found = []
    for turn in range(3):
        found.append(ranks.gather((turn, rank, "x" * 50_000 * rank)))
        found.append(ranks.merge([(turn, rank)] * (1 + 20_000 * rank), lambda one, other: one + other))
    ranks.barrier()
    return [[entry[:2] for entry in each] if each else each for each in found[::2]], found[1::2]


@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_values_of_all_ranks_are_gathered_and_merged(count):
    for rank, (gathered, merged) in enumerate(run_ranks(count, tell)):
        for turn in range(3):
            assert gathered[turn] == [(turn, other) for other in range(count)]
            if rank:
                assert merged[turn] is None
            else:
                assert sorted(merged[turn]) == sorted(
                    (turn, other) for other in range(count) for _ in range(1 + 20_000 * other)
                )
