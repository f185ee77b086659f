"""One rank of the benchmark; started by ``Crew`` as ``python -m benchmarks.reduction.worker JOBS ANSWERS``."""

from __future__ import annotations

import torch

from benchmarks.crew_member import do_jobs
from benchmarks.reduction.iterations import iterate_by_turns
from benchmarks.reduction.jobs import Answer, Iterations, Sums
from benchmarks.reduction.sums import sum_by_turns
from laconic.reduce import Reducer
from laconic.train.ranks import process_group


def main() -> None:
    """Work until told to stop."""
    torch.set_num_threads(1)
    with process_group(timeout_s=600) as ranks:
        reducer = Reducer()

        def do(kind: str, text: str) -> list[Answer]:
            if kind == "sums":
                return sum_by_turns(Sums.model_validate_json(text), ranks, reducer)
            return iterate_by_turns(Iterations.model_validate_json(text), ranks)

        do_jobs(ranks, do)
        reducer.close()


if __name__ == "__main__":
    main()
