"""What others would do with the same tables and machines, as plans under the same cost model.

=========== ==========================================================================================
table       whole tables, spread over ranks so that the step is short: model parallelism as in DLRM
row         every table dealt to all ranks by rows
replicated  every table on every rank: data parallelism
threshold   HugeCTR's hybrid embedding: rows that are looked up more than once in a rank's batch, weighed by the speed of
            all-to-all beside that of all-reduce, are replicated; the others are dealt to all ranks
per_table   TorchRec's planner: each table gets the kind of place that is cheapest for it alone, the heaviest goes
            first to the rank where the step is shortest; uniform proposals are tried too
=========== ==========================================================================================

Each sends rows or pooled vectors, whichever is cheaper for the table. None may use files. A plan
that lacks memory is still a plan; ``Problem.shortage`` tells. Shape legend: ``G`` runs of equally
likely rows.
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
    """Put whole tables on ranks."""
    return _spread(problem, [Place("table"), Place("table", "pooled")])


def row_wise(problem: Problem) -> list[Place]:
    """Deal all tables."""
    return _spread(problem, [Place("row"), Place("row", "pooled")])


def replicated(problem: Problem) -> list[Place]:
    """Copy all tables."""
    return _spread(problem, [Place("replicated")])


def per_table(problem: Problem) -> list[Place]:
    """Choose for each table alone, or alike for all of them, whichever comes out better."""
    alone = _spread(problem, [kind for kind in problem.kinds if not kind.cold])
    return min([alone, table_wise(problem), row_wise(problem)], key=lambda found: score(problem, found))


def threshold(problem: Problem, speed_ratio: float = 1.0) -> list[Place]:
    """Copy rows that a batch looks up more often than ``speed_ratio``.

    It is the speed of all-to-all beside all-reduce. Copies are limited by what memory dealt tables
    leave.
    """
    choices = row_wise(problem)
    workload = problem.workload
    room = float((problem.cluster.memory_N - problem.total_KN(choices)[Resource.RAM]).min())
    wanted = []
    for t, table in enumerate(workload.tables):
        frequencies = table.frequencies
        lookups = workload.batch * frequencies.lookups_per_sample
        frequent = frequencies.above(min(speed_ratio / lookups, 1.0)).rows
        wanted.append(min(frequent, table.known) if choices[t].can_have_hot_rows and problem.ranks > 1 else 0)
    share = min(1.0, max(room, 0.0) / max(sum(wanted) * workload.row_bytes, 1))
    return [replace(choice.kind, hot=int(hot * share)) for choice, hot in zip(choices, wanted, strict=True)]


BASELINES: dict[str, Callable[[Problem], list[Place]]] = {
    "table": table_wise,
    "row": row_wise,
    "replicated": replicated,
    "threshold": threshold,
    "per_table": per_table,
}
"""By name."""


def _spread(problem: Problem, kinds: Sequence[Place]) -> list[Place]:
    """Give each table the kind that is cheapest for it alone; then whole ones their owners."""
    possible = [kind for kind in kinds if kind in problem.kinds] or [problem.kinds[0]]
    chosen = []
    for t in range(len(problem.costs)):
        choices = [replace(kind, owner=0 if kind.sharding == "table" else None) for kind in possible]
        chosen.append(min(choices, key=lambda choice: _alone_s(problem, t, choice)))
    return spread_owners(problem, chosen)


def _alone_s(problem: Problem, t: int, choice: Place) -> float:
    """Seconds that a table takes by itself, on average over ranks."""
    mean_K = problem.load(t, choice).mean_K(problem.ranks)
    time_K = mean_K[: Resource.CPU] / problem.timeline.rate_KN[: Resource.CPU].mean(axis=1)
    phases = sum(float(time_K[rows].max()) for rows in PHASES.values())
    return phases + float(mean_K[Resource.CPU])
