"""Places of all tables at once, as a mixed-integer program that HiGHS solves.

Devices of a group are alike, so the program places tables on *groups*, each of whose devices gets
the mean of its group's load; ``improve`` then chooses devices. What the mean hides can only make a
step longer, so the optimum of the program, with fractions of tables allowed, is a bound that no
plan can beat::

    minimize   busy + exposed
    x[t, place] = 1 for one place of each table;  hot segments z <= x, the hottest rows first
    y <= x, segments of a cold table's rows that are not read from files: hot or warm, so rows of y >= rows of z
    busy    >= computation + codecs and rows in memory            of each group, and of the owner of each table
    phase   >= load / rate                                        of each link of each group, and of each owner
    exposed >= constant + sum of phases - overlap,  exposed >= 0
    kept    <= memory                                             of each group

Rows are worth copying the more the hotter they are, at any price of the constraints, so segments
fill in their order. Shape legend: ``T`` tables, ``K`` resources, ``H`` groups of devices.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from laconic.cost.load import Load, Place, Resource
from laconic.cost.timeline import PHASES
from laconic.plan.solve.highs import Milp
from laconic.plan.solve.kept_rows import kept_segments
from laconic.plan.solve.problem import Problem

__all__ = ["Relaxed", "solve_tables"]

Floats = NDArray[np.float64]
_TIE = 1e-4  # weight of what is hidden: of two plans that take equally long, the one that sends less
_BUSY, _EXPOSED, _FIRST_PHASE = 0, 1, 2
_FIRST_PLACE = _FIRST_PHASE + len(PHASES)
_TANGENTS = 24  # a column each, for every table and place
_LIMITED = (*range(Resource.CPU), Resource.RAM, Resource.FILE_SPACE)


@dataclass(frozen=True, slots=True)
class Relaxed:
    """What the program found."""

    bound_s: float
    """No plan's step is shorter."""

    starts: tuple[tuple[Place, ...], ...]
    """Plans to begin with: of the program, if time sufficed, and of its relaxation, rounded. Owners
    are first ranks of their groups."""


@dataclass(frozen=True, slots=True)
class _Column:
    """A column: a table's place, or a segment of rows there that are hot or kept in memory."""

    table: int
    kind: Place
    group: int | None
    load: Load
    hot: int = 0
    """Hot rows of the segment; 0 for the place itself."""
    kept: float = 0.0
    """Rows of the segment that are not read from files."""

    @property
    def is_segment(self) -> bool:
        """Whether the column is part of a place."""
        return bool(self.hot or self.kept)


def solve_tables(problem: Problem, time_limit_s: float = 4.0) -> Relaxed | None:
    """Solve the program as far as time allows; None where even fractions of tables do not fit."""
    program = _Program(problem)
    relaxed = program.solve(integral=False, tie=0.0, time_limit_s=None)  # None must mean that nothing fits
    if relaxed is None:
        return None
    bound = (relaxed[_BUSY] + relaxed[_EXPOSED]) / program.units_per_s
    found = program.solve(integral=True, tie=_TIE, time_limit_s=time_limit_s)
    starts = [tuple(program.choices(values)) for values in (found, relaxed) if values is not None]
    return Relaxed(float(bound), tuple(dict.fromkeys(starts)))


class _Program:
    """Columns and constraints."""

    def __init__(self, problem: Problem) -> None:
        self._problem, cluster = problem, problem.cluster
        counts = [group.count for group in cluster.devices]
        self._count_H = np.array(counts)
        self._first_H = np.cumsum(counts) - counts
        timeline = problem.timeline
        rate_KN = timeline.rate_KN
        self._rate_KH = np.stack(
            [rate_KN[:, cluster.group_N == h].min(axis=1) for h in range(len(counts))], 1
        )
        # the solver's tolerance is absolute: times should be about a thousand
        dealt = problem.step([Place("row")] * len(problem.costs))
        self.units_per_s = 1000 / dealt.step_s if dealt.step_s else 1.0
        self._compute_H = timeline.compute_N[self._first_H]
        self._places = [place for t in range(len(problem.costs)) for place in self._places_of(t)]
        self._rows: list[tuple[NDArray[np.int64], Floats, float, float]] = []
        self._one_place_each()
        self._segments_need_their_place()
        for h in range(len(counts)):
            self._limit_group(h)
        for t in range(len(problem.costs)):
            self._limit_owner(t)
        self._expose()

    def solve(self, *, integral: bool, tie: float, time_limit_s: float | None) -> Floats | None:
        """Values of all columns."""
        from scipy.sparse import coo_array  # noqa: PLC0415 -- optional

        size = _FIRST_PLACE + len(self._places)
        price = np.zeros(size)
        price[[_BUSY, _EXPOSED]] = 1.0
        price[_FIRST_PHASE:_FIRST_PLACE] = tie
        upper = np.ones(size)
        upper[:_FIRST_PLACE] = np.inf
        whole = np.array([False] * _FIRST_PLACE + [not place.is_segment for place in self._places])
        number, column, value = [], [], []
        for i, (columns, values, _, _) in enumerate(self._rows):
            number.append(np.full(len(columns), i))
            column.append(columns)
            value.append(values)
        where = (np.concatenate(number), np.concatenate(column))
        matrix = coo_array((np.concatenate(value), where), shape=(len(self._rows), size)).tocsr()
        low, high = (np.array([row[end] for row in self._rows]) for end in (2, 3))
        program = Milp(price, upper, matrix, low, high)
        found = program.solve(whole if integral else None, gap=1e-3, time_limit_s=time_limit_s)
        return None if found is None else found[0]

    def choices(self, values: Floats) -> Iterable[Place]:
        """Take the place with the largest share of each table, and its hot rows."""
        taken = values[_FIRST_PLACE:]
        for t in range(len(self._problem.costs)):
            columns = [i for i, place in enumerate(self._places) if place.table == t]
            best = max((i for i in columns if not self._places[i].is_segment), key=lambda i: taken[i])
            place = self._places[best]
            share = max(taken[best], 1e-9)
            hot = kept = 0.0
            for i in columns:
                other = self._places[i]
                if (other.kind, other.group) == (place.kind, place.group):
                    hot += other.hot * min(taken[i] / share, 1.0)
                    kept += other.kept * min(taken[i] / share, 1.0)
            owner = None if place.group is None else int(self._first_H[place.group])
            choice = replace(place.kind, owner=owner, hot=int(hot))
            yield replace(choice, warm=self._problem.warm_rows(t, choice, kept - int(hot)))

    def _places_of(self, t: int) -> Iterable[_Column]:
        problem = self._problem
        for kind in problem.kinds:
            load = problem.load(t, kind)
            groups: list[int | None] = [None]
            if kind.sharding == "table":
                groups = [h for h in range(len(self._count_H)) if self._fits(load.even_K + load.owner_K, h)]
            for group in groups:
                yield _Column(t, kind, group, load)
                if kind.can_have_hot_rows:
                    yield from self._segments(t, kind, group)
                if kind.cold:
                    yield from self._kept_segments(t, kind, group)

    def _segments(self, t: int, kind: Place, group: int | None) -> Iterable[_Column]:
        # where files count, a row becomes hot that was warm: ``_kept_segments`` has what both save
        kept = self._problem.workload.tables[t].candidates if kind.cold else 0
        before = self._problem.load(t, replace(kind, warm=kept))
        cuts = self._problem.cuts(t)
        for fewer, more in pairwise(cuts):
            load = self._problem.load(t, replace(kind, hot=more, warm=max(kept - more, 0)))
            yield _Column(t, kind, group, load.beyond(before), more - fewer)
            before = load

    def _kept_segments(self, t: int, kind: Place, group: int | None) -> Iterable[_Column]:
        """Rows that memory has instead of the file: on the owner, or a share on each rank."""
        problem = self._problem
        segments = kept_segments(problem.costs[t].needed, problem.workload.tables[t].candidates, _TANGENTS)
        for rows, saved in zip(*(values.tolist() for values in segments), strict=True):
            load_K, none_K = np.zeros(len(Resource)), np.zeros(len(Resource))
            moved = rows * problem.workload.row_bytes / (problem.ranks if group is None else 1)
            load_K[Resource.RAM], load_K[Resource.FILES] = moved, -2 * saved * moved
            even_K, owner_K = (load_K, none_K) if group is None else (none_K, load_K)
            yield _Column(t, kind, group, Load(even_K, owner_K, none_K), kept=rows)

    def _fits(self, load_K: Floats, h: int) -> bool:
        return all(load_K[k] <= self._rate_KH[k, h] for k in (Resource.RAM, Resource.FILE_SPACE))

    def _one_place_each(self) -> None:
        for t in range(len(self._problem.costs)):
            columns = [i for i, place in enumerate(self._places) if place.table == t and not place.is_segment]
            self._add(columns, np.ones(len(columns)), low=1.0, high=1.0)

    def _segments_need_their_place(self) -> None:
        starts = [i for i, place in enumerate(self._places) if not place.is_segment]
        for start, end in pairwise([*starts, len(self._places)]):
            for i in range(start + 1, end):
                self._add([i, start], np.array([1.0, -1.0]), high=0.0)
            if self._places[start].kind.cold:  # hot rows are kept
                segments = self._places[start + 1 : end]
                rows = np.array([place.kept - place.hot for place in segments])
                self._add(list(range(start + 1, end)), rows, low=0.0)

    def _limit_group(self, h: int) -> None:
        """Mean load of the group's devices."""
        n = self._count_H[h]
        loads = (
            place.load.mean_K(n) if place.group == h else place.load.even_K + place.load.other_K
            for place in self._places
        )
        load_KC = np.stack(list(loads), axis=1)
        everything = np.arange(len(self._places))
        for k in _LIMITED:
            self._limit(k, everything, load_KC[k] / self._rate_KH[k, h])
        busy_C, computed = self.units_per_s * load_KC[Resource.CPU], self.units_per_s * self._compute_H[h]
        self._add(everything, busy_C, high=-computed, more={_BUSY: -1.0})

    def _limit_owner(self, t: int) -> None:
        """Whoever has a whole table has all of its load."""
        columns = [i for i, place in enumerate(self._places) if place.table == t and place.group is not None]
        if not columns:
            return
        places = [self._places[i] for i in columns]
        own_KC = np.stack([place.load.even_K + place.load.owner_K for place in places], axis=1)
        groups = [place.group for place in places if place.group is not None]
        for k in range(Resource.CPU):
            self._limit(k, np.array(columns), own_KC[k] / self._rate_KH[k, groups])

    def _limit(self, k: int, columns: NDArray[np.int64], values: Floats) -> None:
        if not values.any():
            return
        for number, rows in enumerate(PHASES.values()):
            if rows.start <= k < rows.stop:
                taken = self.units_per_s * values
                self._add(columns, taken, high=0.0, more={_FIRST_PHASE + number: -1.0})
                return
        self._add(columns, values, high=1.0)

    def _expose(self) -> None:
        timeline = self._problem.timeline
        phases = dict.fromkeys(range(_FIRST_PHASE, _FIRST_PLACE), 1.0)
        high = self.units_per_s * (timeline.overlap_s - timeline.constant_s)
        self._add([], np.empty(0), high=high, more={_EXPOSED: -1.0, **phases})

    def _add(
        self,
        places: list[int] | NDArray[np.int64],
        values: Floats,
        *,
        low: float = -np.inf,
        high: float = np.inf,
        more: dict[int, float] | None = None,
    ) -> None:
        """Add a constraint on places, and on ``more`` columns by their own numbers."""
        more = more or {}
        columns = np.concatenate([np.array([*more], np.int64), np.asarray(places, np.int64) + _FIRST_PLACE])
        all_values = np.concatenate([np.array([*more.values()]), values])
        some = all_values != 0
        self._rows.append((columns[some], all_values[some], low, high))
