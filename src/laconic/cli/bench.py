"""``laconic bench codecs``: one of the benchmarks of a checkout."""

from __future__ import annotations

import sys
from pathlib import Path

import typer

from laconic.errors import ConfigError

app = typer.Typer(help="Measure Laconic against what you would pick instead.", no_args_is_help=True)
_CHECKOUT = Path(__file__).parents[3]
"""Root of the checkout from which an editable install was made."""


@app.callback()
def _group() -> None:
    """Measure Laconic against what you would pick instead."""


@app.command(
    "codecs",
    # options are those of the benchmark, --help among them
    context_settings={
        "allow_extra_args": True,
        "ignore_unknown_options": True,
        "help_option_names": [],
    },
)
def codecs(context: typer.Context) -> None:
    """Ratio, speed and error of every codec, one thread, interleaved in one process."""
    sys.path += [str(_CHECKOUT), str(Path.cwd())]
    try:
        from benchmarks.__main__ import app as benchmarks
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith("benchmarks"):
            raise
        raise ConfigError(
            "bench: no benchmarks here: an installed laconic has none; run this from the root of a checkout of the project"
        ) from error
    benchmarks(["codecs", *context.args], prog_name="laconic bench", standalone_mode=False)
