"""``laconic train``: train a model over the compressed exchange."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import NoReturn

import typer

from laconic.cli.output import (
    JsonFile,
    Overrides,
    RunFile,
    check_outputs,
    console_for,
    report_error,
    write_json,
)
from laconic.errors import LaconicError


def train(
    settings_file: RunFile,
    overrides: Overrides = [],  # noqa: B006 -- typer makes a list of its own
    resume: bool = typer.Option(
        False, help="Continue from the newest checkpoint, or start where there is none."
    ),
    plan: Path | None = typer.Option(
        None,
        metavar="PLAN.TOML",
        help="Where tables and hot rows live: a file of laconic plan. Sharding and send of RUN.TOML do not count then.",
    ),
    json_file: JsonFile = None,
) -> None:
    """Train on one rank, or on all that torchrun, laconic lab or another launcher starts."""
    from dataclasses import asdict

    from laconic.config import load
    from laconic.train.run import run
    from laconic.train.settings import RunSettings

    check_outputs(json=json_file)
    settings = load(settings_file, RunSettings, overrides=tuple(overrides))
    restarted = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")) > 0
    console = console_for(json_file)
    try:
        result = run(settings, resume=resume or restarted, console=console, plan=plan)
    except (LaconicError, OSError, KeyboardInterrupt) as error:
        _leave(error)
    if os.environ.get("RANK", "0") == "0":
        write_json(asdict(result), json_file)


def _leave(error: LaconicError | OSError | KeyboardInterrupt) -> NoReturn:
    """End the process at once: threads may be waiting for peers that are gone."""
    code = 128 + signal.SIGINT if isinstance(error, KeyboardInterrupt) else report_error(error)
    if not isinstance(error, BrokenPipeError):
        sys.stdout.flush()
    os._exit(code)
