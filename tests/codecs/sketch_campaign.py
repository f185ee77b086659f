"""Thousands of random sums through the sketch: ``python -m tests.codecs.sketch_campaign --cases 10000``.

Every sum must equal the dense one; stalls of peeling are counted by the number of nonzeros.
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict

import torch

from tests.codecs.sketch_cases import random_case, reduced_block, sum_by_sketch, summed_block


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=10_000)
    parser.add_argument("--first", type=int, default=0, help="seed of the first case")
    options = parser.parse_args()
    rows = defaultdict(lambda: [0, 0, 0, 0, 0])  # by decade: cases, Bloom, stalls, cells, nonzeros
    wrong = 0
    for seed in range(options.first, options.first + options.cases):
        case = random_case(seed)
        total, stalls, sketch = sum_by_sketch(case, seed, reduced_block if seed % 2 else summed_block)
        if not torch.equal(total, case.total):
            wrong += 1
            print(f"case {seed}: WRONG SUM: {case}; {sketch}")
        row = rows[len(str(case.nonzeros)) - 1]
        for i, more in enumerate((1, sketch.index == "bloom", stalls, sketch.cells, case.nonzeros)):
            row[i] += more
    print(f"{options.cases} cases, {wrong} wrong sums")
    print(f"{'nonzeros from':>14} {'cases':>7} {'Bloom':>7} {'stalls':>7} {'cells each':>11}")
    for decade, (cases, bloom, stalls, cells, nonzeros) in sorted(rows.items()):
        print(f"{10**decade:>14} {cases:>7} {bloom:>7} {stalls:>7} {cells / nonzeros:>11.3f}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
