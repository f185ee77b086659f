"""What may travel a step early, and what a plan gains by it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from laconic.cost.load import Place
from laconic.cost.topology import Cluster
from laconic.cost.workload import RowCoding
from laconic.plan.solve.planner import plan_tables
from tests.plan.problems import problem, table

RANKS, BATCH, ROWS = 4, 256, 3000


@pytest.mark.parametrize("hot", [0, 60])
@pytest.mark.parametrize("bag", [1.0, 3.0])
def test_early_rows_are_those_that_nobody_needed_before(hot, bag):
    load = table("t", ROWS, bag=bag)
    small = problem([load], batch=BATCH)
    rng = np.random.default_rng(0)
    probability = load.frequencies.probability_G.repeat(load.frequencies.count_G)
    early, all_rows = [], []
    for _ in range(200):
        before = rng.choice(ROWS, int(RANKS * BATCH * bag), p=probability)
        needed = np.unique(rng.choice(ROWS, int(BATCH * bag), p=probability))
        travelling = needed[needed >= hot]  # rows are in the order of their frequency
        early.append(len(np.setdiff1d(travelling, before)))
        all_rows.append(len(travelling))
    expected = small.load(0, Place("row", hot=hot)).prefetched
    assert expected == pytest.approx(np.sum(early) / np.sum(all_rows), rel=0.02)


@pytest.mark.parametrize(
    ("choice", "forward", "some"),
    [
        (Place("row"), RowCoding(), True),
        (Place("table", owner=1), RowCoding(ratio=1.2, lossless=True), True),
        (Place("row"), RowCoding(ratio=8.0), False),
        (Place("row", "pooled"), RowCoding(), False),
        (Place("replicated"), RowCoding(), False),
    ],
)
def test_only_rows_that_arrive_as_they_are_travel_early(choice, forward, some):
    load = replace(table("t", ROWS), forward=forward)
    assert (problem([load]).load(0, choice).prefetched > 0) == some


def _step(mbps, **speeds):
    cluster = Cluster.alike(2, memory_gb=1, mbps=mbps, step_ms=20)
    speeds = {"overlap": 0.0, "prefetch_ns": 0.0, **speeds}
    dealt = problem([table("t", 10**6, exponent=0.8)], cluster, batch=2048, **speeds)
    choices = [Place("row")]
    return dealt.step(choices), dealt.step(choices, look_ahead=True), dealt.load(0, choices[0]).prefetched


def test_a_step_gains_what_fits_into_computation():
    plain, ahead, early = _step(100, prefetch_overlap=0.1)
    assert plain.step_s - ahead.step_s == pytest.approx(0.1 * 0.020)
    assert ahead.prefetch_saves_s == pytest.approx(plain.step_s - ahead.step_s)
    plain, ahead, early = _step(100, prefetch_overlap=1.0)
    assert plain.step_s - ahead.step_s == pytest.approx(early * plain.phases["forward"], rel=1e-3)


def test_what_is_hidden_already_is_not_hidden_twice():
    plain, ahead, _ = _step(10_000, prefetch_overlap=1.0, overlap=1.0)
    assert plain.step_s == ahead.step_s == plain.busy_s


@pytest.mark.parametrize(("mbps", "looks"), [(100, True), (100_000, False)])
def test_a_plan_looks_ahead_where_links_are_slow(mbps, looks):
    cluster = Cluster.alike(2, memory_gb=1, mbps=mbps, step_ms=20)
    tables = [table("t", 10**6, exponent=0.8, known=0), table("u", 10**5, known=0)]
    planned = plan_tables(problem(tables, cluster, batch=2048))
    assert planned.look_ahead == looks
    assert (planned.time.prefetch_saves_s > 0) == looks
    assert planned.gap < 0.05
