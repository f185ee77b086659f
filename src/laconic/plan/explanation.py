"""The reason for each table's place, and the plan file with all places and reasons.

A reason says what a table sends there, and what the next best place would cost while all other
tables stay where they are. Shape legend: ``K`` resources, ``N`` ranks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from laconic.cost.link import ring_bytes
from laconic.cost.load import Place, PredictedBytes, Resource
from laconic.cost.workload import TableLoad
from laconic.plan.plan_file import (
    EmbeddingsMemory,
    HotSettings,
    PlacementPlan,
    PredictedStep,
    RowIds,
    TablePlan,
)
from laconic.plan.solve.improve import best_of_kind, score
from laconic.plan.solve.planner import Planned
from laconic.plan.solve.problem import Problem, size_text

__all__ = ["Explained", "explain", "plan_of"]

_SAME = 1e-6  # seconds that nobody will measure


@dataclass(frozen=True, slots=True)
class Explained:
    """One table's place, and the next best one."""

    name: str
    rows: int
    place: Place
    sent: PredictedBytes
    """Bytes that the table sends per rank and step."""

    ram: int
    """Bytes of memory on the rank that keeps most of the table."""

    kept: float
    """Share of lookups that find their row in memory; below 1 only for cold tables."""

    file_bytes: float
    """Bytes read from files and written to them in a step, on the rank with most of them."""

    runner_up: Place | None
    """The best place of another kind; None: no other fits."""

    costs_s: float
    """Seconds by which the step would be longer there."""

    costs_bytes: float
    """Bytes that a rank would send more there, in a step."""

    @property
    def why(self) -> str:
        """One line for people."""
        return f"{self._kept}; {self._beside}" if self.place.cold else self._beside

    @property
    def _kept(self) -> str:
        """Write what memory keeps of a cold table."""
        if not self.place.warm + self.place.hot:
            return f"memory has none of its rows, a step moves {size_text(self.file_bytes)} from and to files"
        return (
            f"memory has the {self.place.hot + self.place.warm:,} most frequent rows, {self.kept:.1%} of lookups, "
            f"a step moves {size_text(self.file_bytes)} from and to files"
        )

    @property
    def _beside(self) -> str:
        """Write what the next best place would cost."""
        if self.runner_up is None:
            return "no other place fits"
        other = str(self.runner_up)
        more = f"{size_text(abs(self.costs_bytes))} {'more' if self.costs_bytes >= 0 else 'less'} sent"
        if self.costs_s < _SAME:
            return f"{other} would take as long, with {more}"
        return f"{other} would take {1e3 * self.costs_s:.3g} ms longer, with {more}"


def explain(problem: Problem, places: Sequence[Place]) -> list[Explained]:
    """Return for every table what its place saves."""
    seconds = score(problem, places)[1]
    total_KN = problem.total_KN(places)
    found = []
    for t, place in enumerate(places):
        base_KN = total_KN - problem.spread_KN(t, place)
        sent, table = problem.load(t, place).sent, problem.workload.tables[t]
        runner_up, costs, more = None, 0.0, 0.0
        for kind in _other_kinds(problem, place.kind):
            other, (short, taken) = best_of_kind(problem, base_KN, t, kind, place.hot)
            if short == 0 and (runner_up is None or taken - seconds < costs):
                runner_up, costs = other, taken - seconds
                more = problem.load(t, other).sent.total - sent.total
        most_K = problem.spread_KN(t, place).max(axis=1)
        ram, file_bytes = int(most_K[Resource.RAM]), float(most_K[Resource.FILES])
        kept = _kept(table, place)
        words = (table.name, table.rows, place, sent, ram, kept, file_bytes)
        found.append(Explained(*words, runner_up, max(costs, 0.0), more))
    return found


def _kept(table: TableLoad, place: Place) -> float:
    share = table.frequencies.share
    if not place.cold or not share:
        return 1.0
    return table.frequencies.hottest(place.hot + place.warm) / share


def _other_kinds(problem: Problem, chosen: Place) -> list[Place]:
    """Return kinds that differ in more than where rows are kept."""
    return [kind for kind in problem.kinds if (kind.sharding, kind.send) != (chosen.sharding, chosen.send)]


def plan_of(
    problem: Problem, planned: Planned, explained: Sequence[Explained], warm_ids: RowIds
) -> PlacementPlan:
    """Make the plan file's content: places, reasons and predictions, without ids of rows."""
    workload, ranks = problem.workload, problem.ranks
    total_KN = problem.total_KN(planned.places)
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
        hot=workload.row_bytes * sum(place.hot for place in planned.places),
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
    exact: Literal["rows", "gradients", True, False] = load.forward.exact and load.backward.exact
    if load.forward.exact != load.backward.exact:
        exact = "rows" if load.forward.exact else "gradients"
    return TablePlan(
        rows=load.rows,
        sharding=explained.place.sharding,
        send=explained.place.send,
        owner=explained.place.owner,
        hot=explained.place.hot,
        cold=explained.place.cold,
        warm=warm,
        bound=load.forward.bound,
        gradient_bound=load.backward.bound,
        exact=exact,
        why=explained.why,
        predicted=explained.sent,
    )
