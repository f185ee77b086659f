"""``python -m benchmarks.thresholding --data DIR [--cases paper|default] [--form stages|neurons] [--seeds 5]``."""

from __future__ import annotations

from rich.console import Console

from benchmarks.data_sets import append_line, data_parser
from benchmarks.results import print_wide
from benchmarks.thresholding.split import (
    SplitOutcome,
    default_cases,
    paper_cases,
    render,
    rows_of,
    run_thresholding_benchmark,
)
from laconic.machine import cores


def main() -> None:
    """Run what the arguments say; every outcome is a line of ``--json`` as soon as it is there."""
    parser = data_parser("python -m benchmarks.thresholding")
    parser.add_argument("--cases", choices=("paper", "default"), default="default")
    parser.add_argument(
        "--form", choices=("stages", "neurons"), default="neurons", help="of the paper's cases"
    )
    parser.add_argument("--processes", type=int, default=cores())
    given = parser.parse_args()
    console = Console(stderr=True)

    def say(outcome: SplitOutcome) -> None:
        line = outcome.as_json()
        console.print(
            f"{line['data']}, seed {line['seed']}, {line['workers']} workers, {line['case']}: {line['log_loss']:.5f}"
        )
        append_line(given.json, line)

    outcomes = run_thresholding_benchmark(
        data=given.data,
        sets=given.sets,
        cases=paper_cases(given.form) if given.cases == "paper" else default_cases(),
        seeds=given.seeds,
        processes=given.processes,
        say=say,
    )
    print_wide(render(rows_of(outcomes)))


if __name__ == "__main__":
    main()
