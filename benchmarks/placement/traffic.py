"""Predicted bytes against those of a rehearsal, which sends what as many ranks would, bit for bit."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from benchmarks.placement.calibration import MEMORY_SHARE
from benchmarks.placement.case import Case
from benchmarks.placement.jobs import Sends
from benchmarks.placement.row import Row
from laconic.cost.load import Place, Resource
from laconic.cost.topology import Cluster
from laconic.exchange import Sgd, Table
from laconic.exchange.ledger import Direction
from laconic.nn import RehearsedEmbeddings
from laconic.plan.access.access import hottest_ids
from laconic.plan.solve.baselines import row_wise, threshold
from laconic.plan.solve.problem import Problem

__all__ = ["measure_traffic", "predicted_bytes"]

_RATE = 200.0  # Mbit/s that plans are made for


def measure_traffic(
    cases: Sequence[Case], ranks: Sequence[int], *, steps: int, say: Callable[[str], None]
) -> list[Row]:
    """Compare whole tables, dealt rows, and dealt rows of which frequent ones are copied, on so many ranks."""
    rows = []
    for case in cases:
        for count in ranks:
            say(f"{case.name}: bytes of {count} ranks")
            problem = _problem(case, count)
            whole = [Place("table", "pooled", owner=t % count) for t in range(len(problem.workload.tables))]
            placements = {"table": whole, "row": row_wise(problem), "threshold": threshold(problem)}
            for name, choices in placements.items():
                rows += _compare(case, problem, name, list(choices), steps)
    return rows


def _problem(case: Case, ranks: int) -> Problem:
    workload = case.workload(Sends(), dense_bytes=0.0)
    memory = MEMORY_SHARE * workload.table_bytes / 1e9
    return Problem(Cluster.alike(ranks, memory_gb=memory, mbps=_RATE), workload)


def _compare(case: Case, problem: Problem, name: str, choices: list[Place], steps: int) -> list[Row]:
    loads, ranks = problem.workload.tables, problem.ranks
    tables = [
        Table(
            name=load.name,
            rows=load.rows,
            sharding=choice.sharding,
            send=choice.send,
            owner=choice.owner,
        )
        for load, choice in zip(loads, choices, strict=True)
    ]
    hot = {
        load.name: hottest_ids(case.access.table(load.name), choice.hot)
        for load, choice in zip(loads, choices, strict=True)
        if choice.hot
    }
    rehearsed = RehearsedEmbeddings(tables, case.model.dim, ranks, optimizer=Sgd(rate=0.0), hot=hot).train()
    taken = 0
    for lookups in case.batches(ranks, steps):
        if lookups.samples == case.batch * ranks:
            rehearsed(lookups).sum().backward()
            taken += 1
    predicted = predicted_bytes(problem, choices)
    accounts = rehearsed.ledger.accounts
    return [
        Row(
            kind="bytes",
            data=case.name,
            hosts=ranks,
            placement=name,
            codec="exact",
            direction=direction,
            predicted_bytes=predicted[direction],
            measured_bytes=accounts[direction].sent / (taken * ranks),
        )
        for direction in predicted
    ]


def predicted_bytes(problem: Problem, choices: Sequence[Place]) -> dict[Direction, float]:
    """Bytes that the planner's model expects a rank to send in a step, on average, size messages included."""
    total_KN = problem.total_KN(choices)
    return {
        "ids": float(total_KN[Resource.IDS_OUT].mean()),
        "forward": float(total_KN[Resource.FORWARD_OUT].mean()),
        "backward": float(total_KN[Resource.BACKWARD_OUT].mean()),
    }
