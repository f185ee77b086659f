"""The tables that ``laconic plan`` shows, and the JSON that it writes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from laconic.cli.output import plain_table

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from laconic.plan.explanation import Explained
    from laconic.plan.plan_file import PlacementPlan
    from laconic.plan.solve.planner import Planned
    from laconic.plan.solve.problem import Problem


def show_plan(console: Console, problem: Problem, planned: Planned, explained: list[Explained]) -> None:
    """Print a line for every table, and where the time of a step goes."""
    from laconic.numerals import bytes_text, milliseconds, share

    time, workload = planned.time, problem.workload
    console.print(
        f"{len(workload.tables)} tables, {sum(t.rows for t in workload.tables):,} rows, "
        f"{bytes_text(workload.table_bytes)} on {problem.ranks} ranks with {workload.batch:,} samples each"
    )
    console.print(_tables(explained))
    for table in explained:
        if table.place.cold:
            kept = table.place.hot + table.place.warm
            console.print(
                f"{table.name}: of {table.rows:,} rows in files, memory has {f'the {kept:,} most frequent' if kept else 'none'}, "
                f"{share(table.kept)} of lookups; a step reads and writes {bytes_text(table.file_bytes)} of them",
                markup=False,
            )
    samples_per_s = problem.ranks * workload.batch / time.step_s if time.step_s else float("inf")
    console.print(
        f"step: {milliseconds(1e3 * time.step_s)} ({samples_per_s:,.0f} samples/s) = "
        f"{milliseconds(1e3 * time.compute_s)} computation + {milliseconds(1e3 * (time.busy_s - time.compute_s))} "
        f"codecs and rows + {milliseconds(1e3 * (time.step_s - time.busy_s))} waiting"
    )
    phases = ", ".join(f"{name} {milliseconds(1e3 * s)}" for name, s in time.phases.items() if s)
    if phases:
        console.print(f"wire: {milliseconds(1e3 * time.wire_s)} in all, hidden or not: {phases}")
    console.print(f"bottleneck: {time.bottleneck}")
    unless = ""
    if planned.look_ahead:
        unless = " without looking ahead"
        console.print(
            f"look-ahead: rows that a step does not change travel while it computes, which saves "
            f"{milliseconds(1e3 * time.prefetch_saves_s)}"
        )
    console.print(
        f"no plan takes less than {milliseconds(1e3 * planned.bound_s)}{unless}: this one is within {share(planned.gap)}"
    )


def comparison(planned: Planned, others: list[dict[str, Any]]) -> Table:
    """Make a table of what other placements would take."""
    from laconic.numerals import bytes_text, milliseconds, times

    shown = plain_table("placement", "step", "beside this plan", "", right=("step", "beside this plan"))
    own = 1e3 * planned.time.step_s
    shown.add_row("this plan", milliseconds(own), times(1.0) if own else "", "")
    for row in others:
        short = f"{bytes_text(row['short_bytes'])} of memory short" if row["short_bytes"] else ""
        ratio = times(row["step_ms"] / own) if own else ""
        shown.add_row(row["name"], milliseconds(row["step_ms"]), ratio, short)
    return shown


def plan_result(
    problem: Problem,
    planned: Planned,
    explained: list[Explained],
    others: list[dict[str, Any]],
    written: PlacementPlan,
) -> dict[str, Any]:
    """Make the value that ``--json`` writes."""
    time = planned.time
    return {
        "kind": "plan",
        "plan": written.model_dump(mode="json"),
        "table_bytes": problem.workload.table_bytes,
        "step_ms": 1e3 * time.step_s,
        "bound_ms": 1e3 * planned.bound_s,
        "gap": planned.gap,
        "look_ahead": planned.look_ahead,
        "look_ahead_saves_ms": 1e3 * time.prefetch_saves_s,
        "compute_ms": 1e3 * time.compute_s,
        "busy_ms": 1e3 * time.busy_s,
        "wire_ms": 1e3 * time.wire_s,
        "phases_ms": {name: 1e3 * seconds for name, seconds in time.phases.items()},
        "bottleneck": time.bottleneck,
        "tables": [
            {
                "name": table.name,
                "place": str(table.place),
                "bytes_sent": table.sent.total,
                "ram_bytes": table.ram,
                "kept": table.kept,
                "file_bytes": table.file_bytes,
                "runner_up": None if table.runner_up is None else str(table.runner_up),
                "runner_up_costs_ms": 1e3 * table.costs_s,
                "runner_up_costs_bytes": table.costs_bytes,
            }
            for table in explained
        ],
        "baselines": others,
    }


def _tables(explained: list[Explained]) -> Table:
    from rich.text import Text

    from laconic.numerals import NONE, bytes_text, milliseconds

    columns = ("table", "rows", "place", "sent", "memory", "next best", "slower by", "sends")
    shown = plain_table(*columns, right=("rows", "sent", "memory", "slower by", "sends"))
    for table in explained:
        other = [NONE, NONE, NONE]
        if table.runner_up is not None:
            sign = "+" if table.costs_bytes >= 0 else "\N{MINUS SIGN}"
            other = [
                str(table.runner_up),
                milliseconds(1e3 * table.costs_s),
                sign + bytes_text(abs(table.costs_bytes)),
            ]
        shown.add_row(
            Text(table.name),
            f"{table.rows:,}",
            str(table.place),
            bytes_text(table.sent.total),
            bytes_text(table.ram),
            *other,
        )
    return shown
