"""What commands share: options, checks of packages and files, tables, JSON, progress, errors."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from laconic.errors import BackendError, ConfigError, LaconicError
from laconic.files import json_text

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from laconic.report import AnyResult

EXTRAS = {
    "data": ("pyarrow",),
    "lab": ("pyroute2",),
    "report": ("plotly",),
    "plan": ("scipy",),
    "tune": ("scipy",),
    "quantize": ("safetensors", "scipy"),
    "xdp": ("ziglang",),
    "serve": ("fastapi", "prometheus_client", "safetensors", "uvicorn"),
    "bench": ("blosc2", "lz4", "onnx", "onnxruntime", "pysz", "torchao", "zfpy", "zstandard"),
}
"""Packages that ``pip install 'laconic[EXTRA]'`` brings, by the names that one imports.

A test compares them with pyproject.toml.
"""

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
RunFile = Annotated[Path, typer.Argument(metavar="RUN.TOML", help="Settings of the run.")]


def need(package: str) -> None:
    """Raise at the beginning of a command if a package is missing that its end needs."""
    if find_spec(package) is None:
        raise ModuleNotFoundError(f"No module named {package!r}", name=package)


def remedy(error: ModuleNotFoundError, command: str) -> str | None:
    """Name the package and the line that installs it; None where no extra brings it."""
    package = (error.name or "").partition(".")[0]
    extras = [extra for extra, packages in EXTRAS.items() if package in packages]
    if not extras:
        return None
    extra = command if command in extras else extras[0]
    return f"{command}: needs {package}; pip install 'laconic[{extra}]'"


def check_outputs(**files: Path | None) -> None:
    """Refuse files that cannot be written before the run, not after; names are the options'."""
    for option, file in files.items():
        if file is None or str(file) == "-":
            continue
        if not file.parent.is_dir():
            raise ConfigError(f"--{option}: no folder {str(file.parent)!r} to write into; make it first")
        if file.is_dir():
            raise ConfigError(f"--{option}: expected a file, got the folder {str(file)!r}")
    if files.get("report") is not None:
        need("plotly")


def check_new_toml(out: Path, *, force: bool, why: str = "") -> None:
    """Refuse a file to write that exists, or is not named ``*.toml``, which ``why`` explains."""
    if out.suffix != ".toml":
        raise ConfigError(f"--out: expected a file named *.toml, got {str(out)!r}{why}")
    if out.exists() and not force:
        raise ConfigError(f"--out: {str(out)!r} exists; choose another name, or replace it with --force")


def console_for(json_file: Path | None) -> Console:
    """Return where tables go: to standard error where JSON takes standard output."""
    from rich.console import Console

    return Console(stderr=json_file is not None and str(json_file) == "-", highlight=False)


def write_json(value: Any, file: Path | None) -> None:
    """Write JSON to a file, or to standard output where it is ``-``; without a file, do nothing."""
    if file is None:
        return
    if str(file) == "-":
        sys.stdout.write(json_text(value))
    else:
        file.write_text(json_text(value))


def write_result(result: AnyResult, json_file: Path | None, report: Path | None) -> None:
    """Write a result as JSON and as a page, where these are wanted."""
    write_json(result.model_dump(mode="json"), json_file)
    if report is not None:
        from laconic.report import write_report

        write_report(result, report)


def plain_table(*names: str, right: Collection[str] = ()) -> Table:
    """Make a table without frames; columns in ``right`` are figures, others text that may fold."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    for name in names:
        if name in right:
            table.add_column(name, justify="right", no_wrap=True)
        else:
            table.add_column(name, overflow="fold")
    return table


def facts_table(rows: Iterable[Sequence[str]]) -> Table:
    """Make a table without a header from rows of text in rich's markup."""
    from rich.table import Table

    table = Table(show_header=False, box=None, padding=(0, 2))
    for row in rows:
        table.add_row(*row)
    return table


@contextmanager
def work_bars() -> Iterator[Callable[[str, int, int], None]]:
    """Show progress bars; give the function to call with the work, what is done, and the total."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskID, TaskProgressColumn, TextColumn, TimeRemainingColumn

    bars = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    tasks: dict[str, TaskID] = {}
    with Progress(*bars, console=Console(stderr=True), transient=True) as shown:

        def progress(what: str, done: int, total: int) -> None:
            if what not in tasks:
                tasks[what] = shown.add_task(what)
            shown.update(tasks[what], completed=done, total=total)

        yield progress


def report_error(error: LaconicError | OSError) -> int:
    """Print an error in one line and return the exit code: 2 for a user's mistake, else 1.

    If the reader of a pipe has seen enough, there is nothing to print, and the code is the shell's.
    """
    if isinstance(error, BrokenPipeError):
        return 128 + signal.SIGPIPE
    text = str(error)
    if isinstance(error, OSError):
        text = f"{error.strerror or error}: {error.filename or ''}".rstrip(": ")
    typer.echo(f"laconic: {text}", err=True)
    return 2 if isinstance(error, ConfigError | BackendError) else 1


def leave(number: int, _frame: object) -> NoReturn:
    """Handle a signal by unwinding the stack, so that what was started is ended in order."""
    sys.exit(128 + number)
