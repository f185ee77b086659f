"""``laconic quantize``: a precision for every table and layer, within a budget of accuracy."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import typer

from laconic.cli.output import (
    JsonFile,
    ReportFile,
    check_outputs,
    console_for,
    need,
    plain_table,
    work_bars,
    write_json,
    write_result,
)
from laconic.errors import ConfigError

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from laconic.quantize.formats import Artifact
    from laconic.quantize.formats.result import QuantizeResult
    from laconic.quantize.search.debugger import Debugged, PartError
    from laconic.quantize.search.run import Refreshed, SearchSettings
    from laconic.quantize.search.workbench import Progress, Workbench

REFUSED = 3
"""Exit code of ``--refresh`` where the recipe breaks its budget."""

_MEASUREMENTS = "quantize.jsonl"
_BUDGET = 0.0005


@dataclass(frozen=True, slots=True)
class _Options:
    """Options that a search, a refresh and the debugger share."""

    console: Console
    run: Path
    """Folder of the run whose model is looked at."""
    out: Path
    samples: int
    probe: int
    seed: int
    shadow: bool
    json_file: Path | None
    report: Path | None

    def open_workbench(self, progress: Progress) -> Workbench:
        """Load the model and the samples that it is measured on."""
        from laconic.quantize.search.workbench import open_workbench

        return open_workbench(self.run, most=self.samples, seed=self.seed, progress=progress)

    def write(self, artifact: Artifact, bench: Workbench) -> None:
        """Write an artifact, with the model in fp32 beside it where that is wanted."""
        from laconic.quantize.formats import write_artifact

        write_artifact(self.out, artifact, shadow=bench.trained if self.shadow else None)


def quantize(
    run: Path = typer.Argument(
        ..., metavar="RUN", help="Folder of a training run (train.out); with --refresh, of an artifact."
    ),
    budget: str | None = typer.Option(
        None,
        help="Largest increase of normalized entropy, as a share of it: 0.05% or 0.0005. Default: 0.05%.",
    ),
    objective: Literal["size", "latency"] = typer.Option("size", help="What to make small."),
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
    """Search a precision for each table and layer, verify it on unseen samples and write it."""
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
    subject = run if refresh is None else refresh
    options = _Options(console, subject, out, samples, probe, seed, shadow, json_file, report)
    if debug is not None:
        _debug(options, debug)
        return
    if out.exists():
        raise ConfigError(
            f"--out: {str(out)!r} exists, and artifacts are never changed; choose another folder"
        )
    if refresh is not None:
        _refresh(options, run, allowed)
        return
    settings = SearchSettings(allowed or _BUDGET, objective, probe, batch, seed)
    _search(options, settings, measurements, fresh)


def _search(options: _Options, settings: SearchSettings, measurements: Path | None, fresh: bool) -> None:
    from laconic.quantize.search.run import measurement_file, quantize_run

    need("scipy")
    console, run = options.console, options.run
    with work_bars() as progress:
        bench = options.open_workbench(progress)
        file = measurement_file(bench, settings, measurements or run / _MEASUREMENTS, fresh=fresh)
        known = len(file)
        quantized = quantize_run(bench, settings, file, run.resolve().name, progress)
        options.write(quantized.artifact, bench)
    if file.forgotten:
        console.print(f"{file.forgotten} measurements of another model or other samples were replaced")
    if known:
        console.print(f"{known} measurements were taken from {file.path}", soft_wrap=True)
    write_result(quantized.result, options.json_file, options.report)
    _show(console, quantized.result, options.out)


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
    from rich.text import Text

    from laconic.numerals import bytes_text

    figures = ("fp32", "now", "us", "NE")
    shown = plain_table("table, layer", "precision", *figures, "next in line", right=figures)
    shown.columns[-1].style = "dim"
    for part in result.parts:
        chosen = part.precision
        shown.add_row(
            Text(part.name),
            chosen.label,
            bytes_text(part.candidates[0].bytes),
            bytes_text(chosen.bytes),
            f"{chosen.us:+.1f}",
            f"+{chosen.estimate or 0:.4%}",
            part.reason.partition("; ")[2],
        )
    return shown


def _debug(options: _Options, what: Path) -> None:
    """Compare an artifact, or a recipe applied to the run, with the run in fp32."""
    from laconic.quantize.search.debugger import debug
    from laconic.quantize.search.workbench import thinned

    if not what.exists():
        raise ConfigError(
            f"--debug: no {str(what)!r}; expected the folder of an artifact or a recipe, *.toml"
        )
    with work_bars() as progress:
        bench = options.open_workbench(progress)
        artifact = _artifact(what, options.run, bench, progress)
        debugged = debug(bench.trained, artifact, thinned(bench.halves.search, options.probe), progress)
    write_json(asdict(debugged), options.json_file)
    _show_debugged(options.console, debugged)


def _artifact(what: Path, run: Path, bench: Workbench, progress: Progress) -> Artifact:
    from laconic.config import load
    from laconic.quantize.formats import Recipe, read_artifact
    from laconic.quantize.search.search import Drafts

    if not what.is_dir():
        return Drafts(bench.trained, bench.observed, progress).artifact(load(what, Recipe))
    artifact = read_artifact(what)
    if (artifact.shape, artifact.features.table_names) != (
        bench.trained.shape,
        bench.trained.features.table_names,
    ):
        raise ConfigError(
            f"--debug: {what} is of another model than {run}; give the run that it was made from"
        )
    return artifact


def _show_debugged(console: Console, debugged: Debugged) -> None:
    from rich.text import Text

    figures = ("SQNR", "served", "cosine", "logit", "NE")
    shown = plain_table("table, layer", "precision", *figures, "worst id", right=figures)
    shown.columns[-1].style = "dim"
    for error in debugged.parts:
        served = "" if error.accumulated_db is None else f"{error.accumulated_db:.1f}"
        shown.add_row(
            Text(error.part.name),
            error.precision,
            f"{error.sqnr_db:.1f}",
            served,
            f"{error.cosine:.5f}",
            f"{error.logit_rms:.2g}",
            f"+{error.harm.expected:.4%}",
            f"{error.ids[0].id}: {error.ids[0].share:.0%}" if error.ids else "",
        )
    console.print(shown)
    console.print(
        "SQNR in dB, of a part alone and as served after all others; logit: root mean square of its change; NE: harm of "
        "the part alone; worst id: the one on whose samples most of it falls",
        style="dim",
    )
    harm = debugged.harm
    console.print(
        f"all together: NE {harm.measured:+.4%} +- {harm.measured_se:.4%} measured, {harm.expected:.4%} expected, "
        f"on {debugged.samples:,} samples"
    )
    for sample in debugged.hurt:
        ids = sample.ids[sample.worst_table]
        console.print(
            f"logit {sample.logit:+.3f} -> {sample.low:+.3f}, label {sample.label}: furthest from fp32 is "
            f"{sample.worst_table}, ids {ids}",
            soft_wrap=True,
            markup=False,
        )


def _refresh(options: _Options, old: Path, allowed: float | None) -> None:
    """Apply an artifact's recipe to a new run; exit with ``REFUSED`` if that breaks the budget."""
    from laconic.quantize.formats import read_artifact
    from laconic.quantize.search.run import refresh, refresh_budget

    run = options.run
    if not run.is_dir():
        raise ConfigError(
            f"--refresh: no folder {str(run)!r}; expected that of a training run, its train.out"
        )
    artifact = replace(read_artifact(old), tables={}, layers={})  # its recipe is all that is needed
    budget = refresh_budget(artifact, allowed)
    with work_bars() as progress:
        bench = options.open_workbench(progress)
        refreshed = refresh(bench, artifact, budget, progress)
        if refreshed.within:
            options.write(refreshed.artifact, bench)
    write_json(_refreshed(refreshed), options.json_file)
    harm, scored = refreshed.scored.harm, refreshed.scored
    options.console.print(
        f"NE {scored.exact.normalized_entropy:.5f} -> {scored.low.normalized_entropy:.5f}: {harm.measured:+.4%} +- "
        f"{harm.measured_se:.4%} measured, {harm.expected:.4%} expected, of {budget:.4%} allowed, on {harm.samples:,} samples"
    )
    if refreshed.within:
        options.console.print(f"{options.out} has the artifact", soft_wrap=True, markup=False)
        return
    worst = ", ".join(_offender(error) for error in refreshed.offenders)
    typer.echo(
        f"laconic: --refresh: the recipe of {old} breaks its budget of {budget:.4%} on {run}: NE {harm.measured:+.4%} "
        f"measured, {harm.expected:.4%} expected; most by {worst}; nothing was written; search again with "
        f"laconic quantize {run} --budget {budget:.4%}",
        err=True,
    )
    raise typer.Exit(REFUSED)


def _offender(error: PartError) -> str:
    return f"{error.part.name} ({error.precision}) +{error.harm.expected:.4%}"


def _refreshed(refreshed: Refreshed) -> dict[str, Any]:
    return {
        "within": refreshed.within,
        "budget": refreshed.budget,
        "harm": asdict(refreshed.scored.harm),
        "exact": asdict(refreshed.scored.exact),
        "low": asdict(refreshed.scored.low),
        "offenders": [asdict(error) for error in refreshed.offenders],
    }
