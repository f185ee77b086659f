"""Memory has the most frequent rows of tables that are in files, and all memory is used."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from laconic.cost.load import Place, Resource
from laconic.cost.topology import Cluster
from laconic.plan.access.access import DistinctRows, TableAccess, warm_ids
from laconic.plan.solve.kept_rows import kept_segments, share_memory
from laconic.plan.solve.planner import plan_tables
from tests.plan.problems import GB, problem, table

DISK = [{"name": "disk", "memory_gb": 1, "mbps": 80}]
COLD = Place("row", cold=True)


@settings(max_examples=30)
@given(st.integers(1, 30_000), st.floats(0, 3), st.integers(1, 5000), st.floats(0.1, 1))
def test_segments_never_save_less_than_rows_do_and_as_much_where_they_touch(rows, exponent, batch, share):
    needed = problem([table("t", rows, exponent=exponent)], batch=batch).costs[0].needed
    most = max(1, int(rows * share))
    rows_S, saved_S = kept_segments(needed, most, 16)
    assert rows_S.sum() == pytest.approx(most)
    assert (np.diff(saved_S) < 0).all()
    at = np.unique(np.linspace(0, most, 60).astype(int))
    ends = np.concatenate([[0], np.cumsum(rows_S)])
    found = np.interp(at, ends, np.concatenate([[0], np.cumsum(rows_S * saved_S)]))
    true = np.array([needed.touched(0) - needed.touched(k) for k in at.tolist()])
    slack = 1e-6 * true[-1]
    assert (found >= true - slack).all()
    assert (found <= true * 1.15 + 1).all()
    assert found[1 if at[1] == 1 else 0] == pytest.approx(true[1 if at[1] == 1 else 0], abs=slack)


def test_no_rows_have_no_segments():
    rows_S, saved_S = kept_segments(problem([table("t", 9)]).costs[0].needed, 0, 16)
    assert len(rows_S) == len(saved_S) == 0


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_a_table_that_does_not_fit_keeps_as_many_rows_as_memory_has_room_for(ranks):
    cluster = Cluster.alike(ranks, memory_gb=0.0005, mbps=10_000, tiers=DISK)
    small = problem([table("user", 100_000, exponent=1.1)], cluster)
    planned = plan_tables(small)
    (choice,) = planned.places
    assert (choice.kind, choice.hot) == (COLD, 0)
    room = ranks * 0.0005 * GB / small.workload.row_bytes
    assert room - ranks <= choice.warm <= room
    assert choice.warm % ranks == 0
    cold = small.step([replace(choice, warm=0)])
    assert planned.time.step_s < 0.7 * cold.step_s
    assert planned.bound_s <= planned.time.step_s <= 1.02 * planned.bound_s


def test_without_known_ids_no_row_is_warm():
    cluster = Cluster.alike(2, memory_gb=0.0005, mbps=10_000, tiers=DISK)
    (choice,) = plan_tables(problem([table("user", 100_000, known=0)], cluster)).places
    assert choice == COLD


def test_memory_goes_to_the_table_whose_rows_are_asked_for_and_all_is_used():
    """A table that would fit is in files too, except rows that are worth more than another's."""
    cluster = Cluster.alike(2, memory_gb=0.0005, mbps=10_000, tiers=DISK)
    busy, idle = table("busy", 20_000, exponent=0.6, bag=8.0), table("idle", 7000, exponent=0.6, bag=0.1)
    small = problem([idle, busy], cluster)
    planned = plan_tables(small)
    of_idle, of_busy = planned.places
    assert of_busy.cold
    assert of_busy.warm > 3 * max(of_idle.warm, 1)
    assert of_idle.cold
    used_N = small.total_KN(planned.places)[Resource.RAM]
    assert (used_N > 0.999 * 0.0005 * GB).all()
    assert planned.gap < 0.02


def test_what_fits_in_memory_is_in_no_file():
    cluster = Cluster.alike(2, memory_gb=1, mbps=1000, tiers=DISK)
    planned = plan_tables(problem([table("a", 5000), table("b", 900)], cluster))
    assert not any(choice.cold or choice.warm for choice in planned.places)


def test_memory_is_shared_by_what_rows_save():
    cluster = Cluster.alike(2, memory_gb=0.0002, mbps=10_000, tiers=DISK)
    small = problem([table("a", 9000), table("b", 9000), table("c", 9000, bag=4.0)], cluster)
    whole = Place("table", cold=True, owner=1)
    shared = share_memory(small, [replace(COLD, hot=30), COLD, whole])
    slopes = []
    for t, choice in enumerate(shared):
        needed, k = small.costs[t].needed, choice.hot + choice.warm
        slopes.append(needed.touched(k) - needed.touched(k + 1))
    assert shared[0].hot == 30
    assert shared[0].warm == pytest.approx(shared[1].warm - 30, rel=0.05, abs=4)
    assert small.shortage(shared) == 0
    room_N = cluster.memory_N - small.total_KN(shared)[Resource.RAM]
    assert room_N[1] < 3 * small.workload.row_bytes
    assert max(slopes) < 1.6 * min(slopes)  # segments are a factor of 1.2 of rows apart


def _access(ids, rows):
    ids_H = np.array(ids)
    none = np.empty(0, np.int64)
    counts_H = np.arange(len(ids_H), 0, -1)
    return TableAccess(
        name="t",
        rows=rows,
        lookups=int(counts_H.sum()),
        samples=99,
        ids_H=ids_H,
        counts_H=counts_H,
        missed_H=np.zeros_like(ids_H),
        tail_rows_R=none,
        tail_lookups_R=none,
        sampled=0,
        distinct=DistinctRows(len(ids_H), len(ids_H), len(ids_H)),
        bags=(),
        zipf=None,
        drift=None,
    )


def test_warm_ids_are_the_most_frequent_and_no_rank_gets_more_than_planned():
    access = _access([8, 4, 2, 1, 6, 3, 0, 9], 10)
    whole = Place("table", cold=True, owner=0, hot=1, warm=4)
    assert warm_ids(access, whole, 2).tolist() == [1, 2, 4, 6]
    assert warm_ids(access, replace(COLD, hot=1, warm=4), 2).tolist() == [1, 2, 3, 4]
    assert warm_ids(access, replace(COLD, hot=1, warm=7), 2).tolist() == [1, 2, 3, 4, 6, 9]
    assert warm_ids(access, replace(COLD, warm=3), 1).tolist() == [2, 4, 8]
