"""The simplest plan that takes hardly longer: what gains next to nothing is not worth its risks.

Predictions are expectations. Whole tables that balance on average do not in every step; hot rows go out of fashion.
Rows dealt to all ranks have neither problem.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from laconic.placement.choice import Choice, Kind
from laconic.placement.improve import score
from laconic.placement.problem import Problem

__all__ = ["SLACK", "simplify"]

SLACK = 1.03
"""A step may get longer by this factor, in all: less than predictions err by."""


def simplify(problem: Problem, choices: Sequence[Choice]) -> list[Choice]:
    """Deal tables by rows and forget hot rows, first everywhere, then table by table, as long as that is free."""
    short, seconds = score(problem, choices)
    limit = (short, seconds * SLACK)
    simple = list(choices)
    for simpler in _SIMPLER:
        plan = [simpler(choice) for choice in simple]
        if score(problem, plan) <= limit:
            simple = plan
            break
    for t, choice in enumerate(simple):
        for simpler in _SIMPLER:
            plan = [*simple[:t], simpler(choice), *simple[t + 1 :]]
            if score(problem, plan) <= limit:
                simple = plan
                break
    return simple


def _dealt(choice: Choice) -> Choice:
    """Deal rows to all ranks; copies and pooled vectors stay what they are."""
    return Choice(Kind("row", choice.kind.send, choice.kind.cold), None, choice.hot)


def _without_hot(choice: Choice) -> Choice:
    return Choice(choice.kind, choice.owner)


_SIMPLER: tuple[Callable[[Choice], Choice], ...] = (
    lambda choice: _without_hot(_dealt(choice)),
    _without_hot,
    _dealt,
)
"""The simplest first."""
