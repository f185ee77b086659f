"""``laconic profile``: how often the rows of each table are looked up."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from laconic.cli.output import (
    JsonFile,
    Overrides,
    ReportFile,
    check_outputs,
    console_for,
    need,
    plain_table,
    work_bars,
    write_json,
)
from laconic.errors import ConfigError

if TYPE_CHECKING:
    from rich.console import Console

    from laconic.data import ParquetSettings, SyntheticSettings
    from laconic.plan.access.access import Access, TableAccess


def profile(
    data: Path = typer.Argument(
        ...,
        metavar="DATA",
        help="Settings of a run (*.toml), a prepared folder, or Parquet: a file or a folder.",
    ),
    columns: Path | None = typer.Option(
        None, help="Parquet that was not prepared: TOML file that says what the columns are."
    ),
    overrides: Overrides = [],  # noqa: B006 -- typer makes a list of its own
    out: Path = typer.Option(Path("access.parquet"), help="File to write; replaced if it exists."),
    report: ReportFile = None,
    json_file: JsonFile = None,
) -> None:
    """Count lookups of the training samples in one pass, in memory independent of their number."""
    from laconic.plan.access.access_file import write_access
    from laconic.report import write_report

    need("pyarrow")
    check_outputs(out=out, json=json_file, report=report)
    name = data.resolve().name.encode(errors="replace").decode()  # names of files need not be text
    access = _profiled(_settings(data, columns, overrides), name)
    write_access(access, out)
    if report is not None:
        write_report(access, report)
    write_json(_summary(access), json_file)
    _show(console_for(json_file), access, out, report)


def _settings(data: Path, columns: Path | None, overrides: list[str]) -> ParquetSettings | SyntheticSettings:
    from laconic.config import load
    from laconic.data import ParquetSettings
    from laconic.train.settings import RunSettings

    if data.suffix == ".toml":
        if columns is not None:
            raise ConfigError(
                f"--columns: {str(data)!r} says what the columns are; use --set data.columns=FILE"
            )
        return load(data, RunSettings, overrides=tuple(overrides)).data
    if overrides:
        raise ConfigError(f"--set: expected the settings of a run (*.toml) to change, got {str(data)!r}")
    if not data.exists():
        raise ConfigError(f"{data}: no such file or folder")
    if data.is_file() and data.suffix != ".parquet":
        raise ConfigError(
            f"{data}: expected *.toml, *.parquet or a folder of them; laconic prepare makes one of raw logs"
        )
    if columns is None and not (data / "schema.toml").is_file():
        raise ConfigError(f"{data}: no schema.toml in it; say what the columns are with --columns FILE.TOML")
    return ParquetSettings(kind="parquet", path=data, columns=columns)


def _profiled(settings: ParquetSettings | SyntheticSettings, name: str) -> Access:
    """Profile all training samples under a progress bar."""
    from laconic.data import open_source
    from laconic.plan.access.profile import Profiler

    with work_bars() as progress:
        progress("opening", 0, 1)
        source = open_source(settings)
        samples, done = source.samples_in("train"), 0
        progress("opening", 1, 1)
        profiler = Profiler(
            [(feature.name, feature.rows) for feature in source.schema.categorical], samples, source=name
        )
        for lookups in source.lookups_in_order("train"):
            profiler.add(lookups)
            done += lookups.samples
            progress("counting lookups", done, samples)
        return profiler.finish()


def _summary(access: Access) -> dict[str, Any]:
    return {
        "source": access.source,
        "samples": access.samples,
        "tables": [_table_summary(table) for table in access.tables],
    }


def _table_summary(table: TableAccess) -> dict[str, Any]:
    from dataclasses import asdict

    return {
        "name": table.name,
        "rows": table.rows,
        "lookups": table.lookups,
        "distinct": asdict(table.distinct),
        "exact": table.exact,
        "head": int(table.ids_H.size),
        "missed_at_most": int(table.missed_H.max(initial=0)),
        "sampled": table.sampled,
        "mean_bag": table.mean_bag,
        "bags": [list(pair) for pair in table.bags],
        "top_share": table.top_share,
        "zipf": None if table.zipf is None else asdict(table.zipf),
        "drift": None if table.drift is None else asdict(table.drift),
    }


def _show(console: Console, access: Access, out: Path, report: Path | None) -> None:
    from rich.markup import escape
    from rich.text import Text

    from laconic.numerals import NONE, plain, share
    from laconic.report.access_page import errors_text

    figures = ("rows", "looked up", "lookups", "bag", "top 1 %", "Zipf", "KS", "drift")
    shown = plain_table("table", *figures, right=figures)
    shown.columns[0].min_width = 8
    for table in access.tables:
        zipf, drift = table.zipf, table.drift
        shown.add_row(
            Text(table.name),
            f"{table.rows:,}",
            f"{'' if table.exact else '≈'}{table.distinct.rows:,}",
            f"{table.lookups:,}",
            plain(table.mean_bag),
            share(table.top_share),
            NONE if zipf is None else f"{zipf.exponent:.2f}",
            NONE if zipf is None else f"{zipf.ks:.2f}",
            NONE if drift is None else f"{drift.distance:.3f}",
        )
    console.print(f"{escape(access.source)}: {access.samples:,} samples")
    console.print(shown)
    chance = max((table.drift.noise for table in access.tables if table.drift), default=0.0)
    console.print(f"Chance alone moves drift by ±{chance:.3f} (standard deviation).")
    for sentence in errors_text(access):
        console.print(escape(sentence))
    also = f"; {escape(str(report))} has plots" if report else ""
    console.print(f"{escape(str(out))} has all counts{also}")
