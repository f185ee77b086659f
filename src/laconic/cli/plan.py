"""``laconic plan``: where tables and rows should live, why, and how long a step will take."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from laconic.cli.output import (
    JsonFile,
    Overrides,
    check_new_toml,
    check_outputs,
    console_for,
    need,
    write_json,
)
from laconic.cli.plan_output import comparison, plan_result, show_plan
from laconic.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from laconic.adapt.tune.result import TunedTable
    from laconic.cost.workload import RowCoding, Workload
    from laconic.plan.access.access import Access
    from laconic.plan.explanation import Explained
    from laconic.plan.solve.problem import Problem
    from laconic.train.planning import Ratios, RunFacts
    from laconic.train.settings import RunSettings


@dataclass(frozen=True, slots=True)
class _Sizes:
    """Sizes that options give; None where the run's settings, or defaults, count."""

    batch: int | None
    dim: int | None
    dense_mb: float | None
    zipf: float
    hot_every: int


def plan(
    cluster_file: Path = typer.Argument(..., metavar="CLUSTER.TOML", help="Devices, memory and links."),
    profile: Path | None = typer.Option(
        None,
        metavar="ACCESS.PARQUET",
        help="What laconic profile wrote: tables, and how often rows are looked up.",
    ),
    run: Path | None = typer.Option(
        None, metavar="RUN.TOML", help="Settings of the run: tables, batch, dimensions, dense part."
    ),
    overrides: Overrides = [],  # noqa: B006 -- typer makes a list of its own
    batch: int | None = typer.Option(
        None, min=1, help="Samples per rank and step. Default: the run's, or 1024."
    ),
    dim: int | None = typer.Option(None, min=1, help="Dimensions of embeddings. Default: the run's, or 16."),
    dense_mb: float | None = typer.Option(
        None, min=0, help="Dense gradients in MB. Default: the run's, or 0."
    ),
    zipf: float = typer.Option(
        1.05, min=0, max=10, help="Without a profile: rows are looked up by Zipf's law with this exponent."
    ),
    tuned: Path | None = typer.Option(
        None, metavar="TUNE.JSON", help="What laconic tune --json wrote: bounds and ratios of every table."
    ),
    forward_ratio: float | None = typer.Option(
        None,
        min=1,
        help="How many times smaller rows get; 1: they travel exactly. Default: as the run rehearses.",
    ),
    backward_ratio: float | None = typer.Option(
        None, min=1, help="How many times smaller gradients get. Default: as the run rehearses."
    ),
    hot_every: int = typer.Option(
        1, min=1, help="Steps between two synchronizations of hot rows; 1: training is exact."
    ),
    overlap: float | None = typer.Option(
        None, min=0, max=1, help="Share of computation during which messages travel. Default: 0.25."
    ),
    measured: Path | None = typer.Option(
        None, metavar="RESULT.JSON", help="What laconic train --json wrote: how fast codecs are here."
    ),
    compare: bool = typer.Option(False, "--compare", help="Also show what other placements would take."),
    out: Path = typer.Option(
        Path("plan.toml"), help="Plan file to write; ids of hot and warm rows go beside it."
    ),
    force: bool = typer.Option(False, "--force", help="Replace the plan if it exists."),
    json_file: JsonFile = None,
) -> None:
    """Place tables and rows so that a step is as short as memory, computation and links allow."""
    from rich.console import Console

    from laconic.adapt.tune.result import TuneResult
    from laconic.config import read_json
    from laconic.plan.explanation import explain, plan_of
    from laconic.plan.plan_file import write_plan
    from laconic.plan.solve.planner import plan_tables

    need("scipy")
    check_new_toml(out, force=force)
    check_outputs(out=out, json=json_file)
    settings = _run_settings(run, overrides, batch, dim)
    access, facts = _inputs(profile, run, settings)
    tuned_tables = () if tuned is None else read_json(tuned, TuneResult).tables
    given = (forward_ratio, backward_ratio)
    all_tuned = facts is not None and facts.rows.keys() <= {table.name for table in tuned_tables}
    ratios = None
    if settings is not None and None in given and not all_tuned:
        ratios = _ratios(settings, cluster_file)
    sizes = _Sizes(batch, dim, dense_mb, zipf, hot_every)
    workload = _workload(access, facts, sizes, _codings(tuned_tables, *given, ratios))
    problem = _problem(cluster_file, workload, measured, overlap)
    with Console(stderr=True).status("planning"):
        planned = plan_tables(problem)
        explained = explain(problem, planned.places)
        others = _baselines(problem) if compare or json_file is not None else []
    hot, warm = _ids(access, explained, problem.ranks)
    written = write_plan(out, plan_of(problem, planned, explained, warm), hot, warm)
    write_json(plan_result(problem, planned, explained, others, written), json_file)
    console = console_for(json_file)
    show_plan(console, problem, planned, explained)
    console.print(_what_codecs_do(workload, ratios), soft_wrap=True, markup=False)
    if compare:
        console.print(comparison(planned, others))
    console.print(
        f"{out} has the plan; laconic train --plan {out} carries it out.", markup=False, soft_wrap=True
    )


def _run_settings(
    run: Path | None, overrides: list[str], batch: int | None, dim: int | None
) -> RunSettings | None:
    """Return the settings of the run, with what options say otherwise."""
    from laconic.config import load
    from laconic.train.settings import RunSettings

    if run is None and overrides:
        raise ConfigError("--set: changes settings of a run; give it with --run RUN.TOML")
    if run is None:
        return None
    options = [f"train.batch={batch}"] * (batch is not None) + [f"model.dim={dim}"] * (dim is not None)
    return load(run, RunSettings, overrides=(*overrides, *options))


def _inputs(
    profile: Path | None, run: Path | None, settings: RunSettings | None
) -> tuple[Access | None, RunFacts | None]:
    from laconic.plan.access.access_file import read_access
    from laconic.train.planning import run_facts

    if profile is None and settings is None:
        raise ConfigError("plan: which tables? give --profile ACCESS.PARQUET, --run RUN.TOML, or both")
    facts = None if settings is None else run_facts(settings)
    access = None if profile is None else read_access(profile)
    if access is not None and not access.tables:
        raise ConfigError(f"{profile}: has no tables; profile data that has categorical features")
    if access is not None and facts is not None:
        counted = {table.name: table.rows for table in access.tables}
        if counted != facts.rows:
            differ = sorted(set(counted.items()) ^ set(facts.rows.items()))[0][0]
            raise ConfigError(
                f"{profile}: table {differ!r} has {counted.get(differ, 'no')} rows there and "
                f"{facts.rows.get(differ, 'none')} in {run}; profile the run's own data"
            )
    return access, facts


def _ratios(settings: RunSettings, cluster_file: Path) -> Ratios:
    """Rehearse what the run's codecs make of its rows and gradients."""
    from rich.console import Console

    from laconic.cost.topology import read_cluster
    from laconic.data import open_source
    from laconic.train.planning import rehearsed_ratios

    ranks = read_cluster(cluster_file).ranks
    with Console(stderr=True).status("rehearsing what the run sends"):
        return rehearsed_ratios(settings, open_source(settings.data), ranks)


def _what_codecs_do(workload: Workload, ratios: Ratios | None) -> str:
    """Say where the prediction has its compression ratios from."""
    if all(table.forward.ratio == table.backward.ratio == 1 for table in workload.tables):
        return (
            "rows and gradients are taken to travel exactly; --run, --tuned, or --forward-ratio and --backward-ratio, "
            "say what codecs make of them"
            if ratios is None
            else "rows and gradients of this run travel exactly"
        )
    if ratios is None:
        return (
            "rows and gradients are taken to be as small as --tuned, --forward-ratio and --backward-ratio say"
        )
    if ratios.how == "normal":
        return (
            "the run's tables do not fit into this machine's memory, so its codecs were tried on normal values; "
            "--forward-ratio and --backward-ratio say better"
        )
    return "rows and gradients are taken to be as small as in a short rehearsal of the run"


def _codings(
    tuned: Sequence[TunedTable], forward: float | None, backward: float | None, ratios: Ratios | None
) -> dict[str, tuple[RowCoding, RowCoding]]:
    """Return the coding of rows and gradients by table; under an empty name, that of others."""
    from laconic.cost.workload import RowCoding

    found = {"": (RowCoding(ratio=forward or 1.0), RowCoding(ratio=backward or 1.0))}
    if ratios is not None:
        for name, run in ratios.tables.items():
            each = (given or own for given, own in zip((forward, backward), run, strict=True))
            rows, gradients = (RowCoding(ratio=ratio, lossless=ratios.lossless) for ratio in each)
            found[name] = (rows, gradients)
    for table in tuned:
        both = []
        for direction in (table.forward, table.backward):
            bound, sent = direction.chosen.bound, direction.chosen.bytes_sent
            ratio = direction.bytes_exact / sent if bound is not None and sent else 1.0
            both.append(RowCoding(ratio=max(ratio, 1.0), bound=bound, exact=bound is None))
        found[table.name] = (both[0], both[1])
    return found


def _workload(
    access: Access | None,
    facts: RunFacts | None,
    sizes: _Sizes,
    codings: dict[str, tuple[RowCoding, RowCoding]],
) -> Workload:
    """Put the workload together; options take precedence over the settings of the run."""
    from laconic.cost.frequencies import Frequencies
    from laconic.cost.workload import TableLoad, Workload
    from laconic.plan.access.access import access_load

    tables = []
    if access is not None:
        tables = [access_load(table, *codings.get(table.name, codings[""])) for table in access.tables]
    elif facts is not None:
        for name, rows in facts.rows.items():
            forward, backward = codings.get(name, codings[""])
            frequencies = Frequencies.zipf(rows, sizes.zipf)
            tables.append(TableLoad(name=name, frequencies=frequencies, forward=forward, backward=backward))
    unknown = sorted(set(codings) - {""} - {table.name for table in tables})
    if unknown:
        known = ", ".join(table.name for table in tables)
        raise ConfigError(f"--tuned: no table {unknown[0]!r} (known: {known}); tune the run that is planned")
    dense_bytes = facts.dense_bytes if facts is not None else 0.0
    return Workload(
        tables=tuple(tables),
        batch=sizes.batch or (facts.batch if facts is not None else 1024),
        dim=sizes.dim or (facts.dim if facts is not None else 16),
        state_bytes=facts.state_bytes if facts is not None else 4,
        dense_bytes=dense_bytes if sizes.dense_mb is None else 1e6 * sizes.dense_mb,
        coded_ids=facts is None or facts.coded_ids,
        hot_every=sizes.hot_every,
    )


def _problem(cluster_file: Path, workload: Workload, measured: Path | None, overlap: float | None) -> Problem:
    from laconic.cost.speeds import EngineSpeeds, read_speeds
    from laconic.cost.topology import read_cluster
    from laconic.plan.solve.problem import Problem

    speeds = EngineSpeeds() if overlap is None else EngineSpeeds(overlap=overlap)
    if measured is not None:
        speeds = read_speeds(measured, speeds)
    return Problem(read_cluster(cluster_file), workload, speeds)


def _ids(
    access: Access | None, explained: list[Explained], ranks: int
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the ids of hot and of warm rows, by table."""
    from laconic.plan.access.access import hottest_ids, warm_ids

    hot: dict[str, Any] = {}
    warm: dict[str, Any] = {}
    for table in explained:
        choice = table.place
        assert access is not None or not choice.hot + choice.warm, "without a profile no id is known"
        if access is not None and choice.hot:
            hot[table.name] = hottest_ids(access.table(table.name), choice.hot)
        if access is not None and choice.warm:
            warm[table.name] = warm_ids(access.table(table.name), choice, ranks)
    return hot, {name: ids for name, ids in warm.items() if len(ids)}


def _baselines(problem: Problem) -> list[dict[str, Any]]:
    from laconic.plan.solve.baselines import BASELINES

    rows = []
    for name, baseline in BASELINES.items():
        choices = baseline(problem)
        time = problem.step(choices)
        rows.append({"name": name, "step_ms": 1e3 * time.step_s, "short_bytes": problem.shortage(choices)})
    return rows
