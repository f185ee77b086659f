"""``python -m benchmarks.thresholding --data DIR [--cases paper|default] [--form stages|neurons] [--seeds 5]``."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from rich.console import Console

from benchmarks.thresholding.benchmark import default_cases, paper_cases, run_thresholding_benchmark
from benchmarks.thresholding.row import rows_of
from benchmarks.thresholding.tables import render
from benchmarks.thresholding.trial import Outcome
from laconic.machine import cores


def main() -> None:
    """Run what the arguments say; every outcome is a line of ``--json`` as soon as it is there."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.thresholding")
    parser.add_argument("--data", type=Path, required=True, help="folder of *.parquet")
    parser.add_argument(
        "--set", action="append", dest="sets", help="a data set by name; all if none is given"
    )
    parser.add_argument("--cases", choices=("paper", "default"), default="default")
    parser.add_argument(
        "--form", choices=("stages", "neurons"), default="neurons", help="of the paper's cases"
    )
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--processes", type=int, default=cores())
    parser.add_argument("--json", type=Path, help="file that outcomes are appended to")
    given = parser.parse_args()
    console = Console(stderr=True)

    def say(outcome: Outcome) -> None:
        line = outcome.as_json()
        console.print(
            f"{line['data']}, seed {line['seed']}, {line['workers']} workers, {line['case']}: {line['log_loss']:.5f}"
        )
        if given.json is not None:
            with given.json.open("a") as file:
                file.write(json.dumps(line) + "\n")

    outcomes = run_thresholding_benchmark(
        data=given.data,
        sets=given.sets,
        cases=paper_cases(given.form) if given.cases == "paper" else default_cases(),
        seeds=given.seeds,
        processes=given.processes,
        say=say,
    )
    Console().print(render(rows_of(outcomes)))


if __name__ == "__main__":
    main()
