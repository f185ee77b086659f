"""The simplest plan that takes hardly longer: what gains next to nothing is not worth its risks.

Predictions are expectations. Whole tables that balance on average do not in every step; hot rows go out of fashion.
Rows dealt to all ranks have neither problem.
"""

from __future__ import annotations

from collections.abc import Sequence

from laconic.placement.choice import Choice, Kind
from laconic.placement.improve import score
from laconic.placement.problem import Problem

__all__ = ["simplify"]

_SLACK = 1.001  # a step may get longer by this factor, in all


def simplify(problem: Problem, choices: Sequence[Choice]) -> list[Choice]:
    """Deal tables by rows and forget hot rows, first everywhere, then table by table, as long as that is free."""
    short, seconds = score(problem, choices)
    limit = (short, seconds * _SLACK)
    for plan in (_dealt(choices), _without_hot(choices)):
        if score(problem, plan) <= limit:
            return plan
    simple = list(choices)
    for t in range(len(simple)):
        for plan in (_dealt(simple, t), _without_hot(simple, t)):
            if plan != simple and score(problem, plan) <= limit:
                simple = plan
                break
    return simple


def _dealt(choices: Sequence[Choice], only: int | None = None) -> list[Choice]:
    """Deal rows of all tables to all ranks; pooled ones stay so, and would cost more: those are refused by the score."""
    return [
        Choice(Kind("row", choice.kind.send, choice.kind.cold)) if only in (None, t) else choice
        for t, choice in enumerate(choices)
    ]


def _without_hot(choices: Sequence[Choice], only: int | None = None) -> list[Choice]:
    return [
        Choice(choice.kind, choice.owner) if only in (None, t) else choice for t, choice in enumerate(choices)
    ]
