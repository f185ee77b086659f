"""``laconic prepare``: from raw logs to a folder that trains fast."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from laconic.cli.output import JsonFile, check_outputs, console_for, work_bars, write_json

if TYPE_CHECKING:
    from rich.console import Console

_ODD = "taken for 0 (numbers), for unknown (values) or for an empty bag"


def prepare(
    inputs: list[Path] = typer.Argument(help="Files of logs (Criteo: plain or .gz), or folders of Parquet."),
    *,
    out: Path = typer.Option(help="Folder to write; must not exist."),
    form: str = typer.Option("criteo", "--format", help="criteo or parquet."),
    columns: Path | None = typer.Option(None, help="Parquet: TOML file that says what the columns are."),
    min_count: int | None = typer.Option(
        None, min=1, help="Values that occur less often share the row for unknown ones."
    ),
    buckets: int | None = typer.Option(None, min=1, help="Hash into this many rows a table; no counting."),
    eval_fraction: float | None = typer.Option(
        None, min=0, max=1, help="Share of rows to evaluate on. Default: 0.1, or as the columns say."
    ),
    eval_last: bool = typer.Option(
        False, help="Evaluate on the last rows in the order of the input, not on random ones."
    ),
    skip_bad_lines: bool = typer.Option(False, help="Leave out and count lines that are not Criteo's."),
    json_file: JsonFile = None,
) -> None:
    """Count values, map them to ids and write Parquet: whole, or not at all."""
    from laconic.data.columns import RandomSplit, TimeSplit
    from laconic.data.prepare import RawLogs
    from laconic.data.prepare import prepare as run

    check_outputs(json=json_file)
    split: RandomSplit | TimeSplit | None = None
    if eval_last or eval_fraction is not None:
        fraction = 0.1 if eval_fraction is None else eval_fraction
        split = TimeSplit(kind="time", fraction=fraction) if eval_last else RandomSplit(fraction=fraction)
    with work_bars() as progress:
        result = run(
            RawLogs(inputs, form, columns, skip_bad_lines),
            out,
            min_count=min_count,
            buckets=buckets,
            split=split,
            progress=progress,
        )
    facts = {"folder": str(result.folder), **result.facts()}
    write_json(facts, json_file)
    title = f"{result.folder}: {result.rows:,} samples, {result.skipped:,} bad lines left out"
    _show(console_for(json_file), facts, title)


def _show(console: Console, facts: dict[str, Any], title: str) -> None:
    from rich.table import Table

    shown = Table("table", "rows", "lookups of unknown", title=title, title_justify="left")
    shown.columns[1].justify = shown.columns[2].justify = "right"
    for table in facts["tables"]:
        name = f"{table['name']} (bags)" if table["bag"] else table["name"]
        shown.add_row(name, f"{table['rows']:,}", f"{table['unknown']:,}")
    console.print(shown)
    if not facts["odd_values"]:
        return
    odd = Table("column", "null", "NaN", "infinite", "negative", title=_ODD, title_justify="left")
    for column in facts["odd_values"]:
        counts = (column[what] for what in ("null", "nan", "infinite", "negative"))
        odd.add_row(column["name"], *(f"{count:,}" if count else "" for count in counts))
    for shown_column in odd.columns[1:]:
        shown_column.justify = "right"
    console.print(odd)
