"""The planner: where every table and row should live so that a step is as short as it can be.

1. ``table_program`` places tables on groups of devices and cuts off hot rows: a mixed-integer program, whose
   relaxation bounds what any plan can reach.
2. ``improve`` chooses devices, and moves and swaps tables as long as that helps; ``share_memory`` keeps the most
   frequent rows of tables that are in files in the memory that is left.
3. Baselines are starts too, as are tables that are all dealt, the largest in files, so none of them is better, but for the last point.
4. What is predicted to gain less than 3 % of the step is given up for simplicity: rows dealt to all ranks need no
   balance between tables, and hot rows are only as good as the profile.
5. Rows that a step does not change travel while it computes, if that is predicted to gain 5 %.
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

_AHEAD_SLACK = 1.05  # predicted to gain 4 %, at 1 Gbit/s, looking ahead took 4 to 11 % longer


@dataclass(frozen=True, slots=True)
class Planned:
    """A plan, and how good it is."""

    choices: tuple[Place, ...]
    """Of all tables, in their order."""

    time: StepTime
    bound_s: float
    """No plan's step is shorter, unless it looks ahead."""

    look_ahead: bool = False
    """Whether rows of the next step travel while one computes."""

    @property
    def gap(self) -> float:
        """Share that the step may be longer than that of the best plan, if none looks ahead."""
        placed_s = self.time.step_s + self.time.ahead_s
        return max(placed_s / self.bound_s - 1, 0.0) if self.bound_s else 0.0


def plan_tables(problem: Problem) -> Planned:
    """Choose a place for every table; ``PlanError`` where memory does not suffice."""
    relaxed = solve_tables(problem)
    if relaxed is None:
        raise does_not_fit(problem)
    begun = [spread_owners(problem, start, within_groups=True) for start in relaxed.starts]
    begun = [share_memory(problem, start) for start in (*begun, *_dealt_with_files(problem))]
    starts = [*begun, *(baseline(problem) for baseline in BASELINES.values())]
    best_start = min(starts, key=lambda choices: score(problem, choices))
    if best_start not in begun:
        begun.append(best_start)
    tried = [share_memory(problem, improve(problem, start)) for start in begun]
    best = share_memory(problem, simplify(problem, min(tried, key=lambda choices: score(problem, choices))))
    if problem.shortage(best) > 0:
        raise does_not_fit(problem)
    time, ahead = problem.step(best), problem.step(best, look_ahead=True)
    if ahead.step_s * _AHEAD_SLACK <= time.step_s:
        return Planned(tuple(best), ahead, relaxed.bound_s, look_ahead=True)
    return Planned(tuple(best), time, relaxed.bound_s)


def _dealt_with_files(problem: Problem) -> list[list[Place]]:
    """Deal all tables, the largest in files until the others fit; nothing where all do."""
    dealt, tables = [Place("row")] * len(problem.costs), problem.workload.tables
    if not problem.shortage(dealt) or Place("row", cold=True) not in problem.kinds:
        return []
    for t in sorted(range(len(tables)), key=lambda t: -tables[t].rows):
        dealt[t] = Place("row", cold=True)
        if not problem.shortage(dealt):
            break
    return [dealt]
