"""``laconic tune``: measure what bounds save and harm, and write a policy file."""

from __future__ import annotations

from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from laconic.adapt import BUDGET
from laconic.adapt.tune import MOST_STEPS, SHARE
from laconic.cli.output import (
    JsonFile,
    Overrides,
    ReportFile,
    RunFile,
    check_new_toml,
    check_outputs,
    console_for,
    need,
    plain_table,
    work_bars,
    write_result,
)
from laconic.errors import ConfigError

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from laconic.adapt.tune.measure import Measured
    from laconic.adapt.tune.result import TuneResult
    from laconic.train.settings import RunSettings


def tune(
    settings_file: RunFile,
    overrides: Overrides = [],  # noqa: B006 -- typer makes a list of its own
    ranks: int = typer.Option(4, min=2, help="Ranks that the run will have."),
    steps: int | None = typer.Option(
        None,
        min=8,
        help=f"Steps to train before measuring, rounded down to 8, 16, ... 256, 512, ... Default: {SHARE} of an epoch, "
        f"at most {MOST_STEPS:,}.",
    ),
    budget: str | None = typer.Option(
        None, help=f"Largest increase of the loss, as a share of it. Default: {100 * BUDGET:g}%."
    ),
    out: Path = typer.Option(Path("policy.toml"), help="Policy file to write."),
    force: bool = typer.Option(False, "--force", help="Replace the policy file if it exists."),
    json_file: JsonFile = None,
    report: ReportFile = None,
) -> None:
    """Train briefly in one process as all ranks would, and choose bounds for every table."""
    from laconic.adapt.tune.choose import choose
    from laconic.adapt.tune.policy_file import policy_text
    from laconic.config import load
    from laconic.files import write_whole
    from laconic.train.settings import RunSettings

    need("scipy")
    allowed = BUDGET if budget is None else parse_budget(budget)
    check_new_toml(out, force=force, why="; a run knows it by that")
    check_outputs(out=out, json=json_file, report=report)
    settings = load(settings_file, RunSettings, overrides=tuple(overrides))
    result = choose(_measured(settings, ranks, steps), settings_file.name, allowed)
    write_whole(out, policy_text(result))
    write_result(result, json_file, report)
    _show(console_for(json_file), result, out, settings_file)


def parse_budget(text: str) -> float:
    """Read a share, in percent or as a fraction; ConfigError for what is neither."""
    try:
        value = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        value = 0.0
    if not 0 < value < 1:  # NaN neither
        raise ConfigError(f"--budget: expected a share of the loss, as 0.05% or 0.0005, got {text!r}")
    return value


def _measured(settings: RunSettings, ranks: int, steps: int | None) -> Measured:
    """Measure all tables under a progress bar."""
    from laconic.adapt.tune.measure import measure, work_of
    from laconic.data import open_source
    from laconic.train.rehearse import rehearse

    source = open_source(settings.data)
    trained, work = work_of(source, settings.train.batch, ranks, steps)
    pieces = count(1)
    with work_bars() as progress:

        def done() -> None:
            piece = next(pieces)
            progress(f"training as {ranks} ranks", min(piece, trained), trained)
            progress("measuring tables", max(piece - trained, 0), work - trained)

        return measure(rehearse(settings, source, ranks, done), trained)


def _show(console: Console, result: TuneResult, out: Path, settings_file: Path) -> None:
    from rich.markup import escape

    from laconic.numerals import bytes_text, share

    console.print(f"measured as {result.ranks} ranks, after {result.steps} steps: loss {result.loss:.4f}")
    console.print(_table(result))
    fewer = f" ({result.bytes_exact / result.bytes_sent:.1f}x fewer)" if result.bytes_sent else ""
    console.print(
        f"all: {bytes_text(result.bytes_exact)} -> {bytes_text(result.bytes_sent)} a step{fewer}, "
        f"loss +{share(result.harm)} of +{share(result.budget)}; "
        f"no choice within the budget sends less than {bytes_text(result.lower_bound)}"
    )
    console.print(
        f"{escape(str(out))} has the bounds and the reasons. To train with them, write in "
        f"{escape(str(settings_file))}:"
    )
    words = f'  [compression]\n  policy = "{out}"'
    console.print(escape(words), highlight=False, soft_wrap=True)


def _table(result: TuneResult) -> Table:
    """Make a table with two rows for every table: its rows and its gradients."""
    from rich.text import Text

    from laconic.numerals import bytes_text

    figures = ("bound", "bytes", "sent", "harm", "per error")
    shown = plain_table("table, rows", "class", "", *figures, right=figures)
    for table in result.tables:
        lines = (
            ("rows", Text(table.name), table.paper_class, table.forward),
            (
                "gradients",
                Text(f"{table.rows:,}", style="dim"),
                f"HI {table.homogenization_index:.2f}",
                table.backward,
            ),
        )
        for kind, about, paper, direction in lines:
            chosen = direction.chosen
            shown.add_row(
                about,
                paper,
                kind,
                "exact" if chosen.bound is None else f"{chosen.bound:g}",
                bytes_text(direction.bytes_exact),
                bytes_text(chosen.bytes_sent),
                f"+{chosen.harm:.4%}",
                f"{direction.sensitivity:.2g}",
            )
    return shown
