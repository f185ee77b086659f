"""``laconic simulate``: predict steps on clusters of any size, and where each method pays."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from laconic.cli.output import (
    JsonFile,
    Overrides,
    ReportFile,
    check_outputs,
    console_for,
    plain_table,
    work_bars,
    write_result,
)

if TYPE_CHECKING:
    from rich.table import Table

    from laconic.plan.scenario import Scenario
    from laconic.plan.simulate import Cell, ModelLoad
    from laconic.plan.simulate_result import SimulateResult

_METHODS = {
    "dedup": "row-wise tables, each distinct row sent once",
    "bounded": "rows and gradients within an error bound",
    "dense": "dense gradients compressed",
    "hot": "the hottest rows on every rank",
}


def simulate(
    scenario_file: Path | None = typer.Argument(
        None, metavar="[SCENARIO.TOML]", help="Model and clusters; left out: DLRM on Criteo Terabyte."
    ),
    overrides: Overrides = [],  # noqa: B006 -- typer makes a list of its own
    json_file: JsonFile = None,
    report: ReportFile = None,
) -> None:
    """Predict steps for 8 to 4,096 ranks and 1 to 400 Gbit/s from codec speeds measured here."""
    from laconic.config import load, parse
    from laconic.data.synthetic import TERABYTE_ROWS
    from laconic.plan.scenario import Scenario, model_of

    check_outputs(json=json_file, report=report)
    given = tuple(overrides)
    scenario = parse("", Scenario, given) if scenario_file is None else load(scenario_file, Scenario, given)
    model = model_of(scenario, TERABYTE_ROWS)
    result = _result(scenario, model, _cells(scenario, model))
    write_result(result, json_file, report)
    console = console_for(json_file)
    console.print(_table(result))
    console.print(
        "[dim]gains: best step without the method / best step with it; ms: all methods off -> best choice"
    )
    console.print(_needs_table(result))
    console.print("[dim]what a rank announces in a step at the lowest bandwidth, and needs of its machine")


def _cells(scenario: Scenario, model: ModelLoad) -> list[Cell]:
    """Simulate all clusters under a progress bar."""
    from laconic.plan.simulate import simulate as cells_of

    cells = cells_of(
        model,
        scenario.ranks,
        scenario.gbps,
        latency_s=scenario.latency_us / 1e6,
        message_s=scenario.message_us / 1e6,
        all_to_all=scenario.all_to_all,
    )
    found, total = [], len(scenario.ranks) * len(scenario.gbps)
    with work_bars() as progress:
        for cell in cells:
            found.append(cell)
            progress("simulating", len(found), total)
    return found


def _result(scenario: Scenario, model: ModelLoad, cells: Sequence[Cell]) -> SimulateResult:
    from dataclasses import asdict

    from laconic.numerals import plain
    from laconic.plan.rank_needs import rank_needs
    from laconic.plan.simulate import METHODS, Methods, stops_paying
    from laconic.plan.simulate_result import SimulateResult

    def summary(cell: Cell) -> dict[str, object]:
        best = cell.costs[cell.best]
        return {
            "ranks": cell.ranks,
            "gbps": cell.gbps,
            "off_ms": 1e3 * cell.costs[Methods()].step_s,
            "best_ms": 1e3 * best.step_s,
            "best": cell.best.text,
            "gains": [cell.gain(name) for name in METHODS],
            "alone": [cell.alone(name) for name in METHODS],
            "wire_ms": 1e3 * best.wire_s,
            "codec_ms": 1e3 * best.codec_s,
            "bytes": {
                "ids": best.ids_bytes,
                "rows": best.rows_bytes,
                "dense": best.dense_bytes,
                "hot": best.hot_bytes,
            },
            "hot_rows": best.hot_rows,
        }

    def stop(ranks: int, method: str) -> float | None:
        gbps = stops_paying([cell for cell in cells if cell.ranks == ranks], method)
        return None if gbps == float("inf") else gbps

    def need(ranks: int) -> dict[str, object]:
        slowest = next(cell for cell in cells if cell.ranks == ranks)
        announced = slowest.costs[slowest.best].announced_bytes
        return {"ranks": ranks, "announced_bytes": announced} | asdict(rank_needs(ranks))

    row_bytes = 4 * model.dim
    facts = [
        ("rows", f"{sum(f.rows for f in model.frequencies_T):,} in {len(model.frequencies_T)} tables"),
        ("Zipf", plain(scenario.zipf)),
        ("dimensions", str(model.dim)),
        ("batch of a rank", f"{model.samples:,}"),
        ("compute", f"{plain(scenario.compute_ms)} ms"),
        ("dense parameters", f"{scenario.dense_parameters:,}"),
        ("rows coded", f"{plain(row_bytes / model.forward.row_bytes)} times smaller"),
        ("gradients", f"{plain(row_bytes / model.backward.row_bytes)} times"),
        ("dense gradients", f"{plain(model.dense_ratio)} times"),
        ("codec", f"{plain(1e6 * model.forward.block_s)} us a block, {plain(row_bytes / model.forward.row_s / 1e9)} GB/s a core"),
        ("hot rows summed", "every step" if model.sync_every == 1 else f"every {model.sync_every} steps"),
    ]  # fmt: skip
    ranks = scenario.ranks
    over = f"{ranks[0]:,} ranks" if len(ranks) == 1 else f"{ranks[0]:,} to {ranks[-1]:,} ranks"
    return SimulateResult.model_validate(
        {
            "title": f"A step on {over}, on paper",
            "facts": facts,
            "methods": [(name, _METHODS[name]) for name in METHODS],
            "cells": [summary(cell) for cell in cells],
            "stops": [{"ranks": n, "gbps": [stop(n, method) for method in METHODS]} for n in ranks],
            "needs": [need(n) for n in ranks],
        }
    )


def _table(result: SimulateResult) -> Table:
    """Make a table with a row for each number of ranks and each bandwidth."""
    from laconic.numerals import bytes_text, plain, times

    names = [name for name, _ in result.methods]
    columns = ("ranks", "Gbit/s", "ms", "", "sent", *names)
    shown = plain_table(*columns, right=columns)
    for cell in result.cells:
        sent = cell.bytes.ids + cell.bytes.rows + cell.bytes.dense + cell.bytes.hot
        shown.add_row(
            f"{cell.ranks:,}",
            plain(cell.gbps),
            f"{plain(cell.off_ms)} -> {plain(cell.best_ms)}",
            times(cell.off_ms / cell.best_ms),
            bytes_text(sent),
            *(
                f"{gain:.2f}{'*' if name in cell.best.split(' + ') else ' '}"
                for name, gain in zip(names, cell.gains, strict=True)
            ),
            end_section=cell.gbps == result.gbps[-1],
        )
    return shown


def _needs_table(result: SimulateResult) -> Table:
    """Make a table with a row for each number of ranks: announcements, descriptors, memory."""
    from laconic.numerals import bytes_text

    columns = ("ranks", "announced", "descriptors", "buffers at first", "at most")
    shown = plain_table(*columns, right=columns)
    for need in result.needs:
        shown.add_row(
            f"{need.ranks:,}",
            bytes_text(need.announced_bytes),
            f"{need.descriptors:,}",
            bytes_text(need.least_buffer_bytes),
            bytes_text(need.most_buffer_bytes),
        )
    return shown
