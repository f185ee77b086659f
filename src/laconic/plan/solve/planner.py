"""The planner: places every table and row so that a step is as short as possible.

1. ``table_program`` places tables on groups of devices and separates hot rows. It is a
mixed-integer
   program, whose relaxation bounds what any plan can reach.
2. ``improve`` chooses devices, and moves and swaps tables as long as that helps. ``share_memory``
   fills the memory that is left with the most frequent rows of cold tables.
3. Baselines are starts too, and so are row-wise tables with the largest in files. So none of them
is
   better than the plan, but for point 4.
4. What is predicted to gain less than 3 % of the step is given up for simplicity. Row-wise tables
   need no balance between tables, and hot rows are only as good as the profile.
5. Rows that a step does not change are prefetched while it computes, if that is predicted to gain
   5 %.
"""

from __future__ import annotations

from dataclasses import dataclass

from laconic.cost.load import Place
from laconic.cost.timeline import StepTime
from laconic.plan.solve.baselines import BASELINES
from laconic.plan.solve.improve import improve, score, simplify, spread_owners
from laconic.plan.solve.kept_rows import share_memory
from laconic.plan.solve.problem import Problem, does_not_fit
from laconic.plan.solve.table_program import solve_tables

__all__ = ["Planned", "plan_tables"]

_PREFETCH_SLACK = 1.05  # predicted to gain 4 %, at 1 Gbit/s, prefetching took 4 to 11 % longer


@dataclass(frozen=True, slots=True)
class Planned:
    """Places of all tables, and how good they are."""

    places: tuple[Place, ...]
    """Places of all tables, in their order."""

    time: StepTime
    bound_s: float
    """Lower bound in seconds: no plan's step is shorter, unless it prefetches."""

    look_ahead: bool = False
    """Whether rows of the next step are prefetched while one computes."""

    @property
    def gap(self) -> float:
        """Share by which the step may be longer than the best plan's, if none prefetches."""
        placed_s = self.time.step_s + self.time.prefetch_saves_s
        return max(placed_s / self.bound_s - 1, 0.0) if self.bound_s else 0.0


def plan_tables(problem: Problem) -> Planned:
    """Choose a place for every table; ``PlanError`` where memory does not suffice."""
    relaxed = solve_tables(problem)
    if relaxed is None:
        raise does_not_fit(problem)
    begun = [spread_owners(problem, start, within_groups=True) for start in relaxed.starts]
    begun = [share_memory(problem, start) for start in (*begun, *_row_wise_with_cold_tables(problem))]
    starts = [*begun, *(baseline(problem) for baseline in BASELINES.values())]
    best_start = min(starts, key=lambda places: score(problem, places))
    if best_start not in begun:
        begun.append(best_start)
    tried = [share_memory(problem, improve(problem, start)) for start in begun]
    best = share_memory(problem, simplify(problem, min(tried, key=lambda places: score(problem, places))))
    if problem.shortage(best) > 0:
        raise does_not_fit(problem)
    time, prefetching = problem.step(best), problem.step(best, look_ahead=True)
    if prefetching.step_s * _PREFETCH_SLACK <= time.step_s:
        return Planned(tuple(best), prefetching, relaxed.bound_s, look_ahead=True)
    return Planned(tuple(best), time, relaxed.bound_s)


def _row_wise_with_cold_tables(problem: Problem) -> list[list[Place]]:
    """Shard all tables row-wise, the largest in files until others fit; nothing if all fit."""
    places, tables = [Place("row")] * len(problem.costs), problem.workload.tables
    if not problem.shortage(places) or Place("row", cold=True) not in problem.kinds:
        return []
    for t in sorted(range(len(tables)), key=lambda t: -tables[t].rows):
        places[t] = Place("row", cold=True)
        if not problem.shortage(places):
            break
    return [places]
