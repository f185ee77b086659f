"""What ``laconic quantize`` does without a search: debug an artifact, refresh one on a new snapshot."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from laconic.cli.output import write_json
from laconic.cli.progress import work_bars
from laconic.errors import ConfigError

if TYPE_CHECKING:
    from rich.console import Console

    from laconic.quantize.formats import Artifact
    from laconic.quantize.search.debugger import Debugged, PartError
    from laconic.quantize.search.refresh import Refreshed
    from laconic.quantize.search.workbench import Tell, Workbench

REFUSED = 3
"""Exit code where a recipe breaks its budget."""


def debug_run(
    console: Console,
    run: Path,
    what: Path,
    *,
    samples: int,
    probe: int,
    seed: int,
    json_file: Path | None,
) -> None:
    """Compare an artifact, or a recipe applied to the run, with the run in fp32."""
    from laconic.quantize.search.debugger import debug
    from laconic.quantize.search.held_out import thinned
    from laconic.quantize.search.workbench import open_workbench

    if not what.exists():
        raise ConfigError(
            f"--debug: no {str(what)!r}; expected the folder of an artifact or a recipe, *.toml"
        )
    with work_bars() as tell:
        bench = open_workbench(run, most=samples, seed=seed, tell=tell)
        artifact = _artifact(what, run, bench, tell)
        debugged = debug(bench.trained, artifact, thinned(bench.halves.search, probe), tell)
    if json_file is not None:
        write_json(asdict(debugged), json_file)
    _show_debugged(console, debugged)


def _artifact(what: Path, run: Path, bench: Workbench, tell: Tell) -> Artifact:
    from laconic.quantize.formats import Recipe, quantize_model, read_artifact

    if not what.is_dir():
        names = bench.trained.features.table_names
        recipe = Recipe.load(what)
        return quantize_model(
            bench.trained,
            recipe,
            bench.observed,
            say=lambda name: tell("quantizing tables", names.index(name), len(names)),
        )
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
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    shown = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    shown.add_column("table, layer", overflow="fold")
    shown.add_column("precision")
    for name in ("SQNR", "served", "cosine", "logit", "NE"):
        shown.add_column(name, justify="right", no_wrap=True)
    shown.add_column("worst id", overflow="fold", style="dim")
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


def refresh_artifact(
    console: Console,
    old: Path,
    run: Path,
    out: Path,
    allowed: float | None,
    *,
    samples: int,
    seed: int,
    shadow: bool,
    json_file: Path | None,
) -> None:
    """Apply an artifact's recipe to a new run; exit with ``REFUSED`` where that breaks the budget."""
    from laconic.quantize.formats import read_artifact, write_artifact
    from laconic.quantize.search.refresh import refresh, refresh_budget
    from laconic.quantize.search.workbench import open_workbench

    if not run.is_dir():
        raise ConfigError(
            f"--refresh: no folder {str(run)!r}; expected that of a training run, its train.out"
        )
    artifact = read_artifact(old)
    budget = refresh_budget(artifact, allowed)
    with work_bars() as tell:
        bench = open_workbench(run, most=samples, seed=seed, tell=tell)
        refreshed = refresh(bench, artifact, budget, tell)
        if refreshed.within:
            write_artifact(out, refreshed.artifact, shadow=bench.trained if shadow else None)
    if json_file is not None:
        write_json(_refreshed(refreshed), json_file)
    harm, scored = refreshed.scored.harm, refreshed.scored
    console.print(
        f"NE {scored.exact.normalized_entropy:.5f} -> {scored.low.normalized_entropy:.5f}: {harm.measured:+.4%} +- "
        f"{harm.measured_se:.4%} measured, {harm.expected:.4%} expected, of {budget:.4%} allowed, on {harm.samples:,} samples"
    )
    if refreshed.within:
        console.print(f"{out} has the artifact", soft_wrap=True, markup=False)
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
