"""``python -m benchmarks.prediction --data DIR [--ranks 2 4 8] [--batch 2048] [--json FILE]``."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from benchmarks.prediction.benchmark import Outcome, run_prediction_benchmark
from benchmarks.prediction.by_time import MEASURED_AT, ByTime, measure_by_time


def main() -> None:
    """Run what the arguments say, and show every error as a share of what was rehearsed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.prediction")
    parser.add_argument("--data", type=Path, required=True, help="folder of *.parquet")
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4, 8])
    parser.add_argument("--batch", type=int, default=2048, help="samples of a rank")
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument(
        "--counted", type=float, nargs="+", default=[0.1, 0.5], help="shares of the epoch to count"
    )
    parser.add_argument(
        "--by-time", action="store_true", help="measure correlations of batches in order of time too"
    )
    parser.add_argument("--json", type=Path, help="file to write")
    given = parser.parse_args()
    console = Console(stderr=True)
    outcomes: list[Outcome] = []
    with console.status("rehearsing") as status:
        for outcome in run_prediction_benchmark(
            given.data, ranks=given.ranks, batch=given.batch, steps=given.steps, counted=given.counted
        ):
            outcomes.append(outcome)
            status.update(f"{outcome.data}, {outcome.ranks} ranks, {outcome.placement}")
    Console(width=110).print(_render(outcomes))
    if given.by_time:
        Console(width=110).print(_render_by_time(list(measure_by_time(given.data))))
    if given.json is not None:
        given.json.write_text(json.dumps([asdict(outcome) for outcome in outcomes], indent=2))


def _render(outcomes: list[Outcome]) -> Table:
    shown = Table(
        title="predicted / rehearsed bytes - 1", box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0)
    )
    for name in (
        "data",
        "counted",
        "correlation",
        "ranks",
        "placement",
        "ids",
        "rows",
        "gradients",
        "worst table",
    ):
        shown.add_column(name, no_wrap=True)
    for o in outcomes:
        errors = (f"{error:+.1%}" for error in (o.ids, o.forward, o.backward, o.worst_table))
        shown.add_row(
            o.data,
            f"{o.counted:.0%}",
            "measured" if o.correlated else "1",
            str(o.ranks),
            o.placement,
            *errors,
        )
    return shown


def _render_by_time(measured: list[ByTime]) -> Table:
    shown = Table(
        title="distinct rows, batches in order of time", box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0)
    )
    for name in ("data", "batch", "c (range)", "error at c = 1", f"error at c of batch {MEASURED_AT}"):
        shown.add_column(name, no_wrap=True)
    for m in measured:
        shown.add_row(
            m.data,
            str(m.batch),
            f"{m.least:.2f} .. {m.most:.2f}",
            f"{m.independent:+.1%}",
            f"{m.correlated:+.1%}",
        )
    return shown


if __name__ == "__main__":
    main()
