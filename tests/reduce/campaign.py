"""Many random sums of integers, by every sparse method in turn, compared with the dense sum.

Sizes of 1 to 5 million entries (log-uniform), densities of 0.01 to 30 %, single entries and whole rows, the same
places on all ranks or others, 1 to 16 ranks as threads::

    python -m tests.reduce.campaign --cases 10000
"""

from __future__ import annotations

import argparse
from collections import Counter

import numpy as np
import torch

from laconic.exchange.ranks.world import World
from laconic.reduce import Reducer
from tests.reduce.cases import Case, random_case
from tests.reduce.threads import in_threads

METHODS = ("sketch", "owners", "gather")


def wrong_ranks(case: Case, ranks: int, method: str) -> tuple[int, int]:
    """How many ranks have another sum, and how many sketches did not peel."""
    tensors = [case.tensor(rank) for rank in range(ranks)]
    expected = np.sum(tensors, axis=0, dtype=case.dtype)

    def run(world: World) -> tuple[bool, int]:
        x = torch.from_numpy(tensors[world.rank].copy())
        report = Reducer(world).sum(x, method)
        return np.array_equal(x.numpy(), expected), report.stalls

    results = in_threads(ranks, run)
    return sum(not same for same, _ in results), results[0][1]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cases", type=int, default=100)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--most", type=int, default=5_000_000)
    options = parser.parse_args()
    done: Counter[str] = Counter()
    wrong = stalls = 0
    for number in range(options.first, options.first + options.cases):
        rng = np.random.default_rng(number)
        case, ranks = random_case(rng, options.most, ("int32", "int64")), int(rng.integers(1, 17))
        method = METHODS[number % len(METHODS)]
        bad, stalled = wrong_ranks(case, ranks, method)
        done[method] += 1
        stalls += stalled
        if bad:
            wrong += 1
            print(f"case {number}: {bad} of {ranks} ranks are wrong: {method}, {case}", flush=True)
        if (number + 1) % 100 == 0:
            print(f"{number + 1 - options.first} cases, {wrong} wrong, {stalls} stalls", flush=True)
    print(f"{dict(done)}: {wrong} wrong, {stalls} sketches did not peel at first")
    raise SystemExit(wrong > 0)


if __name__ == "__main__":
    main()
