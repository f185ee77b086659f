"""One option for each table, at the least cost within a budget of harm: the multiple-choice knapsack.

For each table, options that another beats in both cost and harm fall away; the lower convex hull of
the rest is a descent whose steps save ever less cost per harm::

    cost
     | o
     |  .
     |   .   x                o  on the hull
     |    o                   x  off it: reached by the fill alone
     |       .   x
     |          . o
     +---------------- harm

Everybody starts at the least harm. The steps of all tables are taken in the order of what they save
per harm, until one does not fit; fractions of it allowed, that would be the best of all (Sinha and
Zoltners, "The multiple-choice knapsack problem", 1979). Budget left over is filled with any
option that still fits. The price of harm at the step that did not fit gives the Lagrangian bound:
no choice within the budget costs less, and ours exceeds it by at most what that one step saves.

Arithmetic is rational: ties are ties and the bound is a bound, to the last bit.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import NamedTuple

from laconic.errors import ConfigError

__all__ = ["Allocation", "Option", "allocate"]


@dataclass(frozen=True, slots=True)
class Option:
    """What one way to treat a table costs, and the harm it does."""

    cost: float

    harm: float
    """As measured; below 0 is noise and counts as 0."""

    def __post_init__(self) -> None:
        if not (math.isfinite(self.cost) and math.isfinite(self.harm)):
            raise ConfigError(
                f"allocate: expected finite cost and harm, got {self.cost!r} and {self.harm!r}; "
                f"leave such options out"
            )


@dataclass(frozen=True, slots=True)
class Allocation:
    """The option chosen for each table, and the totals."""

    chosen: tuple[int, ...]
    cost: float
    harm: float
    """Negative ones counted as 0; never above the budget."""

    lower_bound: float
    """No choice within the budget costs less, so ours is within ``cost - lower_bound`` of the best."""


def allocate(options: Sequence[Sequence[Option]], budget: float) -> Allocation:
    """Choose an option of each table; ties go to the smaller index.

    More budget never raises ``lower_bound``. It may raise ``cost``, within the gap.
    """
    if not math.isfinite(budget):
        raise ConfigError(f"allocate: expected a finite budget, got {budget!r}")
    tables = [_frontier(table, offered) for table, offered in enumerate(options)]
    chosen = [points[0] for points in tables]
    if (least := float(_harm(chosen))) > budget:
        raise ConfigError(
            f"allocate: expected a budget of at least {least!r}, the least harm possible, got {budget!r}; "
            f"raise it or offer options that do less"
        )
    price = _descend(tables, chosen, budget)
    bound = _lagrangian(tables, price, budget)
    _fill(tables, chosen, budget)
    return Allocation(
        chosen=tuple(point.option for point in chosen),
        cost=float(_sum(point.cost for point in chosen)),
        harm=float(_harm(chosen)),
        lower_bound=float(bound),
    )


class _Point(NamedTuple):
    harm: Fraction
    cost: Fraction
    option: int


class _Step(NamedTuple):
    price: Fraction
    """Cost saved per harm added."""
    table: int
    end: _Point


def _frontier(table: int, offered: Sequence[Option]) -> list[_Point]:
    """Options that no other beats, by rising harm and falling cost."""
    if not offered:
        raise ConfigError(f"allocate: expected at least one option for table {table}, got none")
    points = sorted(
        _Point(Fraction(max(option.harm, 0.0)), Fraction(option.cost), index)
        for index, option in enumerate(offered)
    )
    frontier = points[:1]
    for point in points[1:]:
        if point.cost < frontier[-1].cost:
            frontier.append(point)
    return frontier


def _hull(frontier: Iterable[_Point]) -> list[_Point]:
    """Keep what is on the lower convex hull, edges included: their points make smaller steps."""
    hull: list[_Point] = []
    for point in frontier:
        while len(hull) > 1 and _price(hull[-2], hull[-1]) < _price(hull[-1], point):
            hull.pop()
        hull.append(point)
    return hull


def _price(start: _Point, end: _Point) -> Fraction:
    return (start.cost - end.cost) / (end.harm - start.harm)


def _steps(tables: Sequence[Sequence[_Point]]) -> Iterator[_Step]:
    for table, frontier in enumerate(tables):
        for start, end in pairwise(_hull(frontier)):
            yield _Step(_price(start, end), table, end)


def _descend(tables: Sequence[Sequence[_Point]], chosen: list[_Point], budget: float) -> Fraction:
    """Take hull steps, best price first, and return the price of the first that does not fit; 0 if all do."""
    spent = _harm(chosen)
    # the sort is stable: equal prices keep the order of tables, and that of steps within a table
    for price, table, end in sorted(_steps(tables), key=lambda step: step.price, reverse=True):
        after = spent + end.harm - chosen[table].harm
        if float(after) > budget:
            return price
        chosen[table], spent = end, after
    return Fraction(0)


def _lagrangian(tables: Sequence[Sequence[_Point]], price: Fraction, budget: float) -> Fraction:
    """Return the least total of cost and harm at its price, less the budget at that price."""
    # totals meet the budget after rounding to float: this is the largest that may pass
    limit = (Fraction(budget) + Fraction(math.nextafter(budget, math.inf))) / 2
    paid = _sum(min(point.cost + price * point.harm for point in frontier) for frontier in tables)
    return paid - price * limit


def _fill(tables: Sequence[Sequence[_Point]], chosen: list[_Point], budget: float) -> None:
    """Move tables to options that still fit, on the hull or off it, the largest saving first."""
    spent = _harm(chosen)
    while moves := [
        (chosen[table].cost - end.cost, table, end)
        for table, frontier in enumerate(tables)
        for end in frontier
        if end.cost < chosen[table].cost and float(spent + end.harm - chosen[table].harm) <= budget
    ]:
        _, table, end = max(moves, key=lambda move: move[0])  # of equals the first, so the smaller table
        spent += end.harm - chosen[table].harm
        chosen[table] = end


def _harm(points: Iterable[_Point]) -> Fraction:
    return _sum(point.harm for point in points)


def _sum(terms: Iterable[Fraction]) -> Fraction:
    return sum(terms, Fraction(0))
