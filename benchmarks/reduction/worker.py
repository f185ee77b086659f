"""One rank of the benchmark; started by ``WorkerPool`` as ``python -m benchmarks.reduction.worker JOBS ANSWERS``."""

from __future__ import annotations

from functools import partial

from benchmarks.reduction.iterations import iterate_by_turns
from benchmarks.reduction.jobs import Iterations, Sums
from benchmarks.reduction.sums import sum_by_turns
from benchmarks.worker import serve
from laconic.reduce import Reducer
from laconic.train.ranks import process_group


def main() -> None:
    """Work until told to stop."""
    with process_group(timeout_s=600) as ranks:
        reducer = Reducer()
        sums, iterations = partial(sum_by_turns, ranks, reducer), partial(iterate_by_turns, ranks)
        serve(ranks, {Sums: sums, Iterations: iterations})
        reducer.close()


if __name__ == "__main__":
    main()
