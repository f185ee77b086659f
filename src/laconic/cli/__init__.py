"""The command line: every module has the command of its name, and ``output`` what they share.

Heavy imports stay inside commands, so that ``--help`` answers at once. A command exits with 2 for a
user's mistake, be it a wrong option or a wrong setting, and with 1 for what failed while running.
"""

from __future__ import annotations

import os
import sys

import typer

from laconic import __version__
from laconic.cli import (
    aggregator,
    bench,
    inspect,
    lab,
    output,
    plan,
    prepare,
    profile,
    quantize,
    report,
    serve,
    simulate,
    train,
    tune,
)
from laconic.errors import LaconicError

__all__ = ["app", "main", "run"]

app = typer.Typer(
    name="laconic",
    help="Distributed training of recommendation models on ordinary networks.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("aggregator")(aggregator.aggregator)
app.command("demo")(report.demo)
app.command("info")(inspect.info)
app.command("lab", context_settings={"allow_interspersed_args": False})(lab.lab)
app.command("plan")(plan.plan)
app.command("prepare")(prepare.prepare)
app.command("profile")(profile.profile)
app.command("quantize")(quantize.quantize)
app.command("report")(report.report)
app.command("serve")(serve.serve)
app.command("simulate")(simulate.simulate)
app.command("train")(train.train)
app.command("tune")(tune.tune)
app.add_typer(inspect.codec_app, name="codec")
app.add_typer(bench.app, name="bench")


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"laconic {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: bool = typer.Option(
        False, "--version", help="Show the version.", callback=_version, is_eager=True
    ),
) -> None:
    """Distributed training of recommendation models on ordinary networks."""


def main() -> None:
    """Run a command of ``laconic``."""
    run(app)


def run(commands: typer.Typer) -> None:
    """Run a command; an error becomes one line and an exit code."""
    try:
        commands()
    except ModuleNotFoundError as error:
        command = next((word for word in sys.argv[1:] if not word.startswith("-")), "laconic")
        text = output.remedy(error, command)
        if text is None:
            raise
        typer.echo(f"laconic: {text}", err=True)
        sys.exit(1)
    except (LaconicError, OSError) as error:
        if isinstance(error, BrokenPipeError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(output.report_error(error))
