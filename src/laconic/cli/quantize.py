"""``laconic quantize``: a precision for every table and layer of a trained model, within a budget of accuracy."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

import typer

from laconic.cli.extras import need
from laconic.cli.output import JsonFile, ReportFile, check_outputs, console_for, write_json
from laconic.cli.progress import work_bars
from laconic.errors import ConfigError

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from laconic.quantize.formats.result import QuantizeResult
    from laconic.quantize.search.run import SearchSettings

_MEASUREMENTS = "quantize.jsonl"
_BUDGET = 0.0005


def quantize(
    run: Path = typer.Argument(
        ..., metavar="RUN", help="Folder of a training run (train.out); with --refresh, of an artifact."
    ),
    budget: str | None = typer.Option(
        None,
        help="Largest increase of normalized entropy, as a share of it: 0.05% or 0.0005. Default: 0.05%.",
    ),
    objective: str = typer.Option("size", metavar="size|latency", help="What to make small."),
    out: Path = typer.Option(Path("artifact"), help="Folder of the artifact to write."),
    refresh: Path | None = typer.Option(
        None,
        metavar="NEW_RUN",
        help="Apply the artifact's recipe to the newest checkpoint of this run; exit code 3 if it breaks the budget.",
    ),
    debug: Path | None = typer.Option(
        None,
        metavar="ARTIFACT|RECIPE.TOML",
        help="Write nothing; rank tables and layers by the error they add, beside the run in fp32.",
    ),
    samples: int = typer.Option(
        400_000, min=400, help="Most evaluation samples to use; half for the search, half to verify."
    ),
    probe: int = typer.Option(8_192, min=256, help="Samples on which every candidate is measured."),
    batch: int = typer.Option(256, min=1, help="Samples of a batch whose time is measured."),
    seed: int = typer.Option(0, min=0, help="Which samples are drawn for which half."),
    shadow: bool = typer.Option(
        True, help="Put the model in fp32 into the artifact too, to watch for drift."
    ),
    measurements: Path | None = typer.Option(
        None, help=f"File of measurements, to go on from. Default: {_MEASUREMENTS} in the run's folder."
    ),
    fresh: bool = typer.Option(False, "--fresh", help="Measure again what the file has."),
    json_file: JsonFile = None,
    report: ReportFile = None,
) -> None:
    """Search the precision of every table and layer, verify it on unseen samples, and write an artifact."""
    from laconic.cli.quantize_check import debug_run, refresh_artifact
    from laconic.cli.tune import parse_budget
    from laconic.quantize.search.run import SearchSettings

    allowed = None if budget is None else parse_budget(budget)
    console = console_for(json_file)
    check_outputs(json=json_file, report=report)
    if debug is not None and refresh is not None:
        raise ConfigError("--debug and --refresh: give one of them; each has its own result")
    if (debug or refresh) and report is not None:
        raise ConfigError("--report: only a search has a page; use --json")
    if not run.is_dir():
        what = "an artifact" if refresh is not None else "a training run, its train.out"
        raise ConfigError(f"{run}: no such folder; expected that of {what}")
    if debug is not None:
        debug_run(console, run, debug, samples=samples, probe=probe, seed=seed, json_file=json_file)
        return
    check_new_folder(out)
    if refresh is not None:
        refresh_artifact(
            console,
            run,
            refresh,
            out,
            allowed,
            samples=samples,
            seed=seed,
            shadow=shadow,
            json_file=json_file,
        )
        return
    settings = SearchSettings(allowed or _BUDGET, _objective(objective), probe, batch, seed)
    _search(console, run, settings, out, samples, shadow, measurements, fresh, json_file, report)


def _search(
    console: Console,
    run: Path,
    settings: SearchSettings,
    out: Path,
    samples: int,
    shadow: bool,
    measurements: Path | None,
    fresh: bool,
    json_file: Path | None,
    report: Path | None,
) -> None:
    from laconic.quantize.formats import write_artifact
    from laconic.quantize.search.run import measurement_file, quantize_run
    from laconic.quantize.search.workbench import open_workbench
    from laconic.report import write_report

    need("scipy")
    with work_bars() as tell:
        bench = open_workbench(run, most=samples, seed=settings.seed, tell=tell)
        file = measurement_file(bench, settings, measurements or run / _MEASUREMENTS, fresh=fresh)
        known = len(file)
        quantized = quantize_run(bench, settings, file, run.resolve().name, tell)
        write_artifact(out, quantized.artifact, shadow=bench.trained if shadow else None)
    if file.forgotten:
        console.print(f"{file.forgotten} measurements of another model or other samples were replaced")
    if known:
        console.print(f"{known} measurements were taken from {file.path}", soft_wrap=True)
    result = quantized.result
    if json_file is not None:
        write_json(result.model_dump(mode="json"), json_file)
    if report is not None:
        write_report(result, report)
    _show(console, result, out)


def _objective(text: str) -> Literal["size", "latency"]:
    if text == "size":
        return "size"
    if text == "latency":
        return "latency"
    raise ConfigError(f"--objective: expected size or latency, got {text!r}")


def check_new_folder(out: Path) -> None:
    """Say now what would go wrong after the search."""
    if out.exists():
        raise ConfigError(
            f"--out: {str(out)!r} exists, and artifacts are never changed; choose another folder"
        )


def _show(console: Console, result: QuantizeResult, out: Path) -> None:
    from rich.markup import escape

    from laconic.numerals import bytes_text, three

    counts, harm = result.samples, result.harm
    console.print(_table(result))
    for attempt in result.attempts[:-1]:
        refused = attempt.verification or attempt.search
        if refused is None:
            console.print(
                f"backed off: solved for {attempt.budget:.4%}, the combination gave logits that are no numbers"
            )
            continue
        half = "search" if attempt.verification is None else "verification"
        console.print(
            f"backed off: solved for {attempt.budget:.4%}, the combination came to {refused.expected:.4%} expected and "
            f"{refused.measured:+.4%} measured on the {half} half"
        )
    console.print(
        f"size     {bytes_text(result.exact.bytes)} -> {bytes_text(result.low.bytes)}, {result.share:.1%} of fp32"
    )
    console.print(
        f"latency  {three(result.exact.us)} -> {three(result.low.us)} us a batch of {result.batch} on one thread"
    )
    console.print(
        f"NE       {result.exact.ne:.5f} -> {result.low.ne:.5f}: {harm.measured:+.4%} +- {harm.measured_se:.4%} measured, "
        f"{harm.expected:.4%} expected, of {result.budget:.4%} allowed"
    )
    console.print(f"AUC      {result.exact.auc:.5f} -> {result.low.auc:.5f}")
    looks = "" if result.looks == 1 else f", looked at {result.looks} times"
    console.print(
        f"on {counts.verification:,} samples that the search did not see{looks}; it had {counts.search:,}, and measured "
        f"candidates on {counts.probe:,} of them"
    )
    console.print(f"{escape(str(out))} has the artifact", soft_wrap=True)


def _table(result: QuantizeResult) -> Table:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    from laconic.numerals import bytes_text

    shown = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    shown.add_column("table, layer", overflow="fold")
    shown.add_column("precision")
    for name in ("fp32", "now", "us", "NE"):
        shown.add_column(name, justify="right", no_wrap=True)
    shown.add_column("next in line", overflow="fold", style="dim")
    for part in result.parts:
        choice = part.choice
        shown.add_row(
            Text(part.name),
            choice.label,
            bytes_text(part.candidates[0].bytes),
            bytes_text(choice.bytes),
            f"{choice.us:+.1f}",
            f"+{choice.estimate or 0:.4%}",
            part.reason.partition("; ")[2],
        )
    return shown
