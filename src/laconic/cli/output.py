"""Where a command's results go: tables for people, JSON for machines, pages for the browser."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from laconic.cli.extras import need
from laconic.errors import ConfigError
from laconic.files import json_text

if TYPE_CHECKING:
    from rich.console import Console

JsonFile = Annotated[
    Path | None,
    typer.Option(
        "--json", metavar="FILE", help="Also write the results as JSON to this file; '-': standard output."
    ),
]
ReportFile = Annotated[
    Path | None, typer.Option("--report", metavar="FILE.HTML", help="Also write a page of charts.")
]
Overrides = Annotated[
    list[str],
    typer.Option(
        "--set", metavar="KEY=VALUE", help="Change a setting: its dotted name and a value; may be repeated."
    ),
]


def check_outputs(**files: Path | None) -> None:
    """Refuse files that cannot be written now, not after the run; names are those of the options."""
    for option, file in files.items():
        if file is None or str(file) == "-":
            continue
        if not file.parent.is_dir():
            raise ConfigError(f"--{option}: no folder {str(file.parent)!r} to write into; make it first")
        if file.is_dir():
            raise ConfigError(f"--{option}: expected a file, got the folder {str(file)!r}")
    if files.get("report") is not None:
        need("plotly")


def console_for(json_file: Path | None) -> Console:
    """Return where tables go: to standard error where JSON takes standard output."""
    from rich.console import Console

    return Console(stderr=json_file is not None and str(json_file) == "-", highlight=False)


def write_json(value: Any, file: Path) -> None:
    """Write JSON to a file, or to standard output where it is ``-``."""
    if str(file) == "-":
        sys.stdout.write(json_text(value))
    else:
        file.write_text(json_text(value))
