"""Baselines: plans of other systems for the same tables and machines, under the same cost model.

=========== ====================================================================================
table       Table-wise: whole tables, spread over ranks so that the step is short, as in DLRM.
row         Row-wise: the rows of every table are divided among all ranks.
replicated  Every table is on every rank: data parallelism.
threshold   HugeCTR's hybrid embedding. Rows that a rank's batch looks up more than once, weighed by
            the speed of all-to-all beside that of all-reduce, are replicated; others are row-wise.
per_table   TorchRec's planner. Each table gets the kind of place that is cheapest for it alone. The
            heaviest goes first to the rank where the step is shortest. Uniform proposals are tried
            too.
=========== ====================================================================================

Each sends rows or pooled vectors, whichever is cheaper for the table. None may use files. A plan
that lacks memory is still a plan: see ``Problem.shortage``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from laconic.cost.load import Place, Resource
from laconic.cost.timeline import PHASES
from laconic.plan.solve.improve import score, spread_owners
from laconic.plan.solve.problem import Problem

__all__ = ["BASELINES", "per_table", "replicated", "row_wise", "table_wise", "threshold"]


def table_wise(problem: Problem) -> list[Place]:
    """Shard all tables table-wise."""
    return _spread(problem, [Place("table"), Place("table", "pooled")])


def row_wise(problem: Problem) -> list[Place]:
    """Shard all tables row-wise."""
    return _spread(problem, [Place("row"), Place("row", "pooled")])


def replicated(problem: Problem) -> list[Place]:
    """Replicate all tables."""
    return _spread(problem, [Place("replicated")])


def per_table(problem: Problem) -> list[Place]:
    """Choose for each table alone, or alike for all of them, whichever comes out better."""
    alone = _spread(problem, [kind for kind in problem.kinds if not kind.cold])
    return min([alone, table_wise(problem), row_wise(problem)], key=lambda found: score(problem, found))


def threshold(problem: Problem, speed_ratio: float = 1.0) -> list[Place]:
    """Copy rows that a batch looks up more often than ``speed_ratio``.

    This is the speed of all-to-all over that of all-reduce. Copies get the memory that row-wise
    tables leave.
    """
    places = row_wise(problem)
    workload = problem.workload
    room = float((problem.cluster.memory_N - problem.total_KN(places)[Resource.RAM]).min())
    wanted = []
    for t, table in enumerate(workload.tables):
        frequencies = table.frequencies
        lookups = workload.batch * frequencies.lookups_per_sample
        frequent = frequencies.above(min(speed_ratio / lookups, 1.0)).rows
        wanted.append(min(frequent, table.known) if places[t].can_have_hot_rows and problem.ranks > 1 else 0)
    share = min(1.0, max(room, 0.0) / max(sum(wanted) * workload.row_bytes, 1))
    return [replace(place.kind, hot=int(hot * share)) for place, hot in zip(places, wanted, strict=True)]


BASELINES: dict[str, Callable[[Problem], list[Place]]] = {
    "table": table_wise,
    "row": row_wise,
    "replicated": replicated,
    "threshold": threshold,
    "per_table": per_table,
}
"""Planners of other systems by name."""


def _spread(problem: Problem, kinds: Sequence[Place]) -> list[Place]:
    """Give each table the kind that is cheapest for it alone, then table-wise ones owners."""
    possible = [kind for kind in kinds if kind in problem.kinds] or [problem.kinds[0]]
    chosen = []
    for t in range(len(problem.costs)):
        places = [replace(kind, owner=0 if kind.sharding == "table" else None) for kind in possible]
        chosen.append(min(places, key=lambda place: _alone_s(problem, t, place)))
    return spread_owners(problem, chosen)


def _alone_s(problem: Problem, t: int, place: Place) -> float:
    """Return seconds that a table takes by itself, on average over ranks."""
    mean_K = problem.load(t, place).mean_K(problem.ranks)
    time_K = mean_K[: Resource.CPU] / problem.timeline.capacity_KN[: Resource.CPU].mean(axis=1)
    phases = sum(float(time_K[rows].max()) for rows in PHASES.values())
    return phases + float(mean_K[Resource.CPU])
