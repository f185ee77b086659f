"""Places of all tables at once, as a mixed-integer program that HiGHS solves.

Devices of a group are alike, so the program places tables on *groups*, each of whose devices gets
the mean of its group's load; ``improve`` then chooses devices. What the mean hides can only make a
step longer, so the optimum of the program, with fractions of tables allowed, is a bound that no
plan can beat::

    minimize   busy + exposed
    x[t, place] = 1 for one place of each table
    z <= x    hot segments, the hottest rows first
    y <= x    segments of a cold table's rows that are not read from files: hot or warm,
              so rows of y >= rows of z
    busy    >= computation + codecs and rows in memory    of each group and each table's owner
    phase   >= load / capacity                            of each link of each group and owner
    exposed >= constant + sum of phases - overlap,  exposed >= 0
    kept    <= memory                                     of each group

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
_FIRST_COLUMN = _FIRST_PHASE + len(PHASES)
_TANGENTS = 24  # a column each, for every table and place
_LIMITED = (*range(Resource.CPU), Resource.RAM, Resource.FILE_SPACE)


@dataclass(frozen=True, slots=True)
class Relaxed:
    """The bound and the places that the program found."""

    bound_s: float
    """Lower bound of the step in seconds: no plan's step is shorter."""

    starts: tuple[tuple[Place, ...], ...]
    """Plans to begin with: that of the program, if time sufficed, and its relaxation, rounded.
    Owners are the first ranks of their groups."""


@dataclass(frozen=True, slots=True)
class _Column:
    """A column: a table's place, or a segment of rows there that are hot or kept in memory."""

    table: int
    kind: Place
    group: int | None
    load: Load
    hot: int = 0
    """Number of hot rows of the segment; 0 for the place itself."""
    kept: float = 0.0
    """Number of rows of the segment that are not read from files."""

    @property
    def is_segment(self) -> bool:
        """Whether the column is a segment of rows, not the place itself."""
        return bool(self.hot or self.kept)


def solve_tables(problem: Problem, time_limit_s: float = 4.0) -> Relaxed | None:
    """Solve the program as far as time allows; None where even fractions of tables do not fit."""
    program = _Program(problem)
    relaxed = program.solve(integral=False, tie=0.0, time_limit_s=None)  # None must mean that nothing fits
    if relaxed is None:
        return None
    bound = (relaxed[_BUSY] + relaxed[_EXPOSED]) / program.units_per_s
    found = program.solve(integral=True, tie=_TIE, time_limit_s=time_limit_s)
    starts = [tuple(program.places(values)) for values in (found, relaxed) if values is not None]
    return Relaxed(float(bound), tuple(dict.fromkeys(starts)))


class _Program:
    """Columns and constraints."""

    def __init__(self, problem: Problem) -> None:
        self._problem, cluster = problem, problem.cluster
        counts = [group.count for group in cluster.devices]
        self._count_H = np.array(counts)
        self._first_H = np.cumsum(counts) - counts
        timeline = problem.timeline
        capacity_KN = timeline.capacity_KN
        self._capacity_KH = np.stack(
            [capacity_KN[:, cluster.group_N == h].min(axis=1) for h in range(len(counts))], 1
        )
        # the solver's tolerance is absolute: times should be about a thousand
        row_wise = problem.step([Place("row")] * len(problem.costs))
        self.units_per_s = 1000 / row_wise.step_s if row_wise.step_s else 1.0
        self._compute_H = timeline.compute_N[self._first_H]
        self._columns = [column for t in range(len(problem.costs)) for column in self._columns_of(t)]
        self._rows: list[tuple[NDArray[np.int64], Floats, float, float]] = []
        self._one_place_each()
        self._segments_need_their_place()
        for h in range(len(counts)):
            self._limit_group(h)
        for t in range(len(problem.costs)):
            self._limit_owner(t)
        self._expose()

    def solve(self, *, integral: bool, tie: float, time_limit_s: float | None) -> Floats | None:
        """Return the values of all columns; None if nothing was found."""
        from scipy.sparse import coo_array  # noqa: PLC0415 -- optional

        size = _FIRST_COLUMN + len(self._columns)
        price = np.zeros(size)
        price[[_BUSY, _EXPOSED]] = 1.0
        price[_FIRST_PHASE:_FIRST_COLUMN] = tie
        upper = np.ones(size)
        upper[:_FIRST_COLUMN] = np.inf
        whole = np.array([False] * _FIRST_COLUMN + [not column.is_segment for column in self._columns])
        number, index, value = [], [], []
        for i, (columns, values, _, _) in enumerate(self._rows):
            number.append(np.full(len(columns), i))
            index.append(columns)
            value.append(values)
        where = (np.concatenate(number), np.concatenate(index))
        matrix = coo_array((np.concatenate(value), where), shape=(len(self._rows), size)).tocsr()
        low, high = (np.array([row[end] for row in self._rows]) for end in (2, 3))
        program = Milp(price, upper, matrix, low, high)
        found = program.solve(whole if integral else None, gap=1e-3, time_limit_s=time_limit_s)
        return None if found is None else found[0]

    def places(self, values: Floats) -> Iterable[Place]:
        """Take the place with the largest share of each table, and its hot rows."""
        taken = values[_FIRST_COLUMN:]
        for t in range(len(self._problem.costs)):
            columns = [i for i, column in enumerate(self._columns) if column.table == t]
            best = max((i for i in columns if not self._columns[i].is_segment), key=lambda i: taken[i])
            chosen = self._columns[best]
            share = max(taken[best], 1e-9)
            hot = kept = 0.0
            for i in columns:
                other = self._columns[i]
                if (other.kind, other.group) == (chosen.kind, chosen.group):
                    hot += other.hot * min(taken[i] / share, 1.0)
                    kept += other.kept * min(taken[i] / share, 1.0)
            owner = None if chosen.group is None else int(self._first_H[chosen.group])
            place = replace(chosen.kind, owner=owner, hot=int(hot))
            yield replace(place, warm=self._problem.warm_rows(t, place, kept - int(hot)))

    def _columns_of(self, t: int) -> Iterable[_Column]:
        problem = self._problem
        for kind in problem.kinds:
            load = problem.load(t, kind)
            groups: list[int | None] = [None]
            if kind.sharding == "table":
                groups = [h for h in range(len(self._count_H)) if self._fits(load.all_K + load.owner_K, h)]
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
        cuts = self._problem.cuts[t]
        for fewer, more in pairwise(cuts):
            load = self._problem.load(t, replace(kind, hot=more, warm=max(kept - more, 0)))
            yield _Column(t, kind, group, load.beyond(before), more - fewer)
            before = load

    def _kept_segments(self, t: int, kind: Place, group: int | None) -> Iterable[_Column]:
        """Yield segments of rows that memory has: on the owner, or a share on each rank."""
        problem = self._problem
        segments = kept_segments(problem.costs[t].needed, problem.workload.tables[t].candidates, _TANGENTS)
        for rows, saved in zip(*(values.tolist() for values in segments), strict=True):
            load_K, none_K = np.zeros(len(Resource)), np.zeros(len(Resource))
            moved = rows * problem.workload.row_bytes / (problem.ranks if group is None else 1)
            load_K[Resource.RAM], load_K[Resource.FILES] = moved, -2 * saved * moved
            all_K, owner_K = (load_K, none_K) if group is None else (none_K, load_K)
            yield _Column(t, kind, group, Load(all_K, owner_K, none_K), kept=rows)

    def _fits(self, load_K: Floats, h: int) -> bool:
        return all(load_K[k] <= self._capacity_KH[k, h] for k in (Resource.RAM, Resource.FILE_SPACE))

    def _one_place_each(self) -> None:
        for t in range(len(self._problem.costs)):
            columns = [
                i for i, column in enumerate(self._columns) if column.table == t and not column.is_segment
            ]
            self._add(columns, np.ones(len(columns)), low=1.0, high=1.0)

    def _segments_need_their_place(self) -> None:
        starts = [i for i, column in enumerate(self._columns) if not column.is_segment]
        for start, end in pairwise([*starts, len(self._columns)]):
            for i in range(start + 1, end):
                self._add([i, start], np.array([1.0, -1.0]), high=0.0)
            if self._columns[start].kind.cold:  # hot rows are kept
                segments = self._columns[start + 1 : end]
                rows = np.array([column.kept - column.hot for column in segments])
                self._add(list(range(start + 1, end)), rows, low=0.0)

    def _limit_group(self, h: int) -> None:
        """Limit the mean load of the group's devices."""
        n = self._count_H[h]
        loads = (
            column.load.mean_K(n) if column.group == h else column.load.all_K + column.load.others_K
            for column in self._columns
        )
        load_KC = np.stack(list(loads), axis=1)
        everything = np.arange(len(self._columns))
        for k in _LIMITED:
            self._limit(k, everything, load_KC[k] / self._capacity_KH[k, h])
        busy_C, computed = self.units_per_s * load_KC[Resource.CPU], self.units_per_s * self._compute_H[h]
        self._add(everything, busy_C, high=-computed, more={_BUSY: -1.0})

    def _limit_owner(self, t: int) -> None:
        """Limit the load of a table-wise table's owner, which has all of it."""
        columns = [
            i for i, column in enumerate(self._columns) if column.table == t and column.group is not None
        ]
        if not columns:
            return
        owned = [self._columns[i] for i in columns]
        own_KC = np.stack([column.load.all_K + column.load.owner_K for column in owned], axis=1)
        groups = [column.group for column in owned if column.group is not None]
        for k in range(Resource.CPU):
            self._limit(k, np.array(columns), own_KC[k] / self._capacity_KH[k, groups])

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
        phases = dict.fromkeys(range(_FIRST_PHASE, _FIRST_COLUMN), 1.0)
        high = self.units_per_s * (timeline.overlap_s - timeline.constant_s)
        self._add([], np.empty(0), high=high, more={_EXPOSED: -1.0, **phases})

    def _add(
        self,
        indices: list[int] | NDArray[np.int64],
        values: Floats,
        *,
        low: float = -np.inf,
        high: float = np.inf,
        more: dict[int, float] | None = None,
    ) -> None:
        """Add a constraint on columns of places, and on ``more``, phases and times, by number."""
        more = more or {}
        columns = np.concatenate([np.array([*more], np.int64), np.asarray(indices, np.int64) + _FIRST_COLUMN])
        all_values = np.concatenate([np.array([*more.values()]), values])
        some = all_values != 0
        self._rows.append((columns[some], all_values[some], low, high))
