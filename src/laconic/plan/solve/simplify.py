"""The simplest plan that takes hardly longer: what gains next to nothing is not worth its risks.

Predictions are expectations. Whole tables that balance on average do not in every step; hot rows go out of fashion.
Rows dealt to all ranks have neither problem. Tables that memory has room for need no files.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from laconic.cost.load import Choice
from laconic.plan.solve.improve import score
from laconic.plan.solve.problem import Problem

__all__ = ["SLACK", "simplify"]

SLACK = 1.03
"""A step may get longer by this factor, in all: less than predictions err by."""


def simplify(problem: Problem, choices: Sequence[Choice]) -> list[Choice]:
    """Deal tables by rows, forget hot rows, first everywhere, then table by table, and leave files, as long as that is free."""
    short, seconds = score(problem, choices)
    limit = (short, seconds * SLACK)
    simple = list(choices)
    for simpler in _SIMPLER:
        plan = [_rounded(problem, t, simpler(choice)) for t, choice in enumerate(simple)]
        if score(problem, plan) <= limit:
            simple = plan
            break
    for t, choice in enumerate(simple):
        for simpler in _SIMPLER:
            plan = [*simple[:t], _rounded(problem, t, simpler(choice)), *simple[t + 1 :]]
            if score(problem, plan) <= limit:
                simple = plan
                break
    for t in sorted(range(len(simple)), key=lambda t: problem.workload.tables[t].rows):
        plan = [*simple[:t], _in_memory(simple[t]), *simple[t + 1 :]]
        if score(problem, plan) <= limit:
            simple = plan
    return simple


def _rounded(problem: Problem, t: int, choice: Choice) -> Choice:
    return replace(choice, warm=problem.warm_rows(t, choice, choice.warm))


def _dealt(choice: Choice) -> Choice:
    """Deal rows to all ranks; copies and pooled vectors stay what they are."""
    return replace(choice, kind=replace(choice.kind, sharding="row"), owner=None)


def _without_hot(choice: Choice) -> Choice:
    """Forget copies; of a cold table the same rows stay in memory."""
    return replace(choice, hot=0, warm=choice.warm + choice.hot if choice.kind.cold else 0)


def _in_memory(choice: Choice) -> Choice:
    return replace(choice, kind=replace(choice.kind, cold=False), warm=0)


_SIMPLER: tuple[Callable[[Choice], Choice], ...] = (
    lambda choice: _without_hot(_dealt(choice)),
    _without_hot,
    _dealt,
)
"""The simplest first."""
