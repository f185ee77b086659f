"""What the planner found, as a plan file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from laconic.cost.link import ring_bytes
from laconic.cost.load import Resource
from laconic.cost.workload import TableLoad
from laconic.plan.explanation import Explained
from laconic.plan.plan_file import (
    EmbeddingsMemory,
    HotSettings,
    PlacementPlan,
    PredictedStep,
    TablePlan,
)
from laconic.plan.row_ids_file import RowIds
from laconic.plan.solve.planner import Planned
from laconic.plan.solve.problem import Problem

__all__ = ["plan_of"]


def plan_of(
    problem: Problem, planned: Planned, explained: Sequence[Explained], warm_ids: RowIds
) -> PlacementPlan:
    """Write down choices, reasons and predictions; ids of hot and warm rows come beside it."""
    workload, ranks = problem.workload, problem.ranks
    total_KN = problem.total_KN(planned.choices)
    sent = [table.sent for table in explained]
    predicted = PredictedStep(
        step_ms=1e3 * planned.time.step_s,
        samples_per_s=ranks * workload.batch / planned.time.step_s if planned.time.step_s else 0.0,
        bottleneck=planned.time.bottleneck,
        ids_bytes=sum(table.ids for table in sent),
        forward_bytes=sum(table.forward for table in sent),
        backward_bytes=sum(table.backward for table in sent),
        hot_bytes=sum(table.hot for table in sent),
        dense_bytes=ring_bytes(workload.dense_bytes, ranks),
    )
    memory = EmbeddingsMemory(
        ram_N=tuple(int(nbytes) for nbytes in total_KN[Resource.RAM]),
        hot=workload.row_bytes * sum(choice.hot for choice in planned.choices),
        files_N=tuple(int(nbytes) for nbytes in total_KN[Resource.FILE_SPACE]),
    )
    tables = {
        load.name: _table(load, table, len(warm_ids.get(load.name, ())))
        for load, table in zip(workload.tables, explained, strict=True)
    }
    return PlacementPlan(
        ranks=ranks,
        batch=workload.batch,
        dim=workload.dim,
        look_ahead=planned.look_ahead,
        hot=HotSettings(every=workload.hot_every),
        predicted=predicted,
        embeddings_memory=memory,
        tables=tables,
    )


def _table(load: TableLoad, explained: Explained, warm: int) -> TablePlan:
    kind = explained.choice.kind
    exact: Literal["rows", "gradients", True, False] = load.forward.exact and load.backward.exact
    if load.forward.exact != load.backward.exact:
        exact = "rows" if load.forward.exact else "gradients"
    return TablePlan(
        rows=load.rows,
        sharding=kind.sharding,
        send=kind.send,
        owner=explained.choice.owner,
        hot=explained.choice.hot,
        cold=kind.cold,
        warm=warm,
        bound=load.forward.bound,
        gradient_bound=load.backward.bound,
        exact=exact,
        why=explained.why,
        predicted=explained.sent,
    )
