"""What is compared: the planner's choice, and what others would do with the same codecs, as plan files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from laconic.bench.placement.case import Case
from laconic.bench.placement.jobs import Codec, Contender, Sends
from laconic.placement.access_load import hottest_ids
from laconic.placement.baselines import BASELINES
from laconic.placement.choice import Choice
from laconic.placement.explanation import explain
from laconic.placement.plan_file import write_plan
from laconic.placement.planned_file import plan_of
from laconic.placement.planner import Planned, plan_tables
from laconic.placement.problem import Problem

__all__ = ["Chosen", "choose_places", "plan_places"]


@dataclass(frozen=True, slots=True)
class Chosen:
    """Places of all tables, and what they should take."""

    contender: Contender
    choices: tuple[Choice, ...]
    predicted_ms: float
    names: tuple[str, ...]
    """Of all who would choose these places."""


def choose_places(case: Case, problem: Problem, codec: Codec, sends: Sends, folder: Path) -> list[Chosen]:
    """Write a plan file for each different choice; those that lack memory are left out."""
    found: dict[tuple[Choice, ...], list[str]] = {plan_tables(problem).choices: ["planned"]}
    for name, baseline in BASELINES.items():
        choices = tuple(baseline(problem))
        if problem.shortage(choices) <= 0:
            found.setdefault(choices, []).append(name)
    return [_chosen(case, problem, codec, sends, folder, choices, names) for choices, names in found.items()]


def plan_places(case: Case, problem: Problem, codec: Codec, sends: Sends, folder: Path, name: str) -> Chosen:
    """Write the planner's choice alone, under a name of its own."""
    return _chosen(case, problem, codec, sends, folder, plan_tables(problem).choices, [name])


def _chosen(
    case: Case,
    problem: Problem,
    codec: Codec,
    sends: Sends,
    folder: Path,
    choices: tuple[Choice, ...],
    names: Sequence[str],
) -> Chosen:
    plan = _write(case, problem, choices, folder / f"{names[0]}.toml")
    contender = Contender(placement=names[0], codec=codec, sends=sends, plan=plan)
    return Chosen(contender, choices, 1e3 * problem.step(choices).step_s, tuple(names))


def _write(case: Case, problem: Problem, choices: Sequence[Choice], path: Path) -> Path:
    time = problem.step(choices)
    plan = plan_of(problem, Planned(tuple(choices), time, time.step_s), explain(problem, choices), {})
    tables = problem.workload.tables
    hot = {
        table.name: hottest_ids(case.access.table(table.name), choice.hot)
        for table, choice in zip(tables, choices, strict=True)
        if choice.hot
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    write_plan(path, plan, hot, {})
    return path
