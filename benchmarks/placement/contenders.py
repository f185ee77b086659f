"""What is compared: the planner's choice, and what others would do with the same codecs, as plan files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

from benchmarks.placement.case import Case
from benchmarks.placement.jobs import Codec, Contender, Sends
from laconic.cost.load import Place
from laconic.plan.access.access import hottest_ids
from laconic.plan.explanation import explain, plan_of
from laconic.plan.plan_file import write_plan
from laconic.plan.solve.baselines import BASELINES
from laconic.plan.solve.planner import Planned, plan_tables
from laconic.plan.solve.problem import Problem

__all__ = ["Chosen", "choose_places", "plan_places"]


@dataclass(frozen=True, slots=True)
class Chosen:
    """Places of all tables, and what they should take."""

    contender: Contender
    choices: tuple[Place, ...]
    predicted_ms: float
    names: tuple[str, ...]
    """Of all who would choose these places."""
    digest: str
    """Of places and how they are used; plans that differ only in what is predicted have the same."""


def choose_places(case: Case, problem: Problem, codec: Codec, sends: Sends, folder: Path) -> list[Chosen]:
    """Write a plan file for each different choice; those that lack memory are left out."""
    planned = plan_tables(problem)
    found: dict[tuple[tuple[Place, ...], bool], list[str]] = {
        (planned.choices, planned.look_ahead): ["planned"]
    }
    for name, baseline in BASELINES.items():
        choices = tuple(baseline(problem))
        if problem.shortage(choices) <= 0:
            found.setdefault((choices, False), []).append(name)
    return [
        _chosen(case, problem, codec, sends, folder, choices, names, look_ahead=look_ahead)
        for (choices, look_ahead), names in found.items()
    ]


def plan_places(case: Case, problem: Problem, codec: Codec, sends: Sends, folder: Path, name: str) -> Chosen:
    """Write the planner's choice alone, under a name of its own."""
    planned = plan_tables(problem)
    return _chosen(
        case, problem, codec, sends, folder, planned.choices, [name], look_ahead=planned.look_ahead
    )


def _chosen(
    case: Case,
    problem: Problem,
    codec: Codec,
    sends: Sends,
    folder: Path,
    choices: tuple[Place, ...],
    names: Sequence[str],
    *,
    look_ahead: bool,
) -> Chosen:
    time = problem.step(choices, look_ahead=look_ahead)
    planned = Planned(tuple(choices), time, time.step_s, look_ahead)
    plan = _write(case, problem, planned, folder / f"{names[0]}.toml")
    contender = Contender(placement=names[0], codec=codec, sends=sends, plan=plan)
    content = repr((choices, look_ahead, problem.workload.hot_every)).encode()
    digest = blake2b(content, digest_size=4).hexdigest()
    return Chosen(contender, choices, 1e3 * time.step_s, tuple(names), digest)


def _write(case: Case, problem: Problem, planned: Planned, path: Path) -> Path:
    choices = planned.choices
    plan = plan_of(problem, planned, explain(problem, choices), {})
    tables = problem.workload.tables
    hot = {
        table.name: hottest_ids(case.access.table(table.name), choice.hot)
        for table, choice in zip(tables, choices, strict=True)
        if choice.hot
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    write_plan(path, plan, hot, {})
    return path
