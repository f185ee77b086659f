"""Reasons are true: runners-up cost what is said of them."""

from __future__ import annotations

import pytest

from laconic.cost.topology import Cluster
from laconic.plan.explanation import explain, plan_of
from laconic.plan.solve.planner import plan_tables
from tests.plan.problems import problem, table, two_kinds

TABLES = [
    table("user", 9000, known=300, backward=6.0, forward=2.0),
    table("tags", 500, bag=40.0, known=0),
    table("site", 30, exponent=0.5, known=0),
]


@pytest.mark.parametrize("cluster", [Cluster.alike(3, memory_gb=1, mbps=100), two_kinds(egress_mbps=5)])
def test_the_runner_up_costs_what_is_said(cluster):
    small = problem(TABLES, cluster, hot_every=4)
    planned = plan_tables(small)
    for t, table_ in enumerate(explain(small, planned.places)):
        assert table_.place == planned.places[t]
        other = [*planned.places]
        other[t] = table_.runner_up
        assert small.shortage(other) == 0
        slower = small.step(other).step_s - planned.time.step_s
        assert table_.costs_s == pytest.approx(max(slower, 0), abs=2e-4 * planned.time.wire_s)
        more = small.load(t, other[t]).sent.total - small.load(t, planned.places[t]).sent.total
        assert table_.costs_bytes == pytest.approx(more)
        assert str(table_.runner_up) in table_.why


def test_where_nothing_else_fits_the_reason_says_so():
    tight = Cluster.alike(1, memory_gb=1, mbps=100)
    small = problem(TABLES, tight)
    assert {table_.why for table_ in explain(small, plan_tables(small).places)} == {"no other place fits"}


def test_predictions_of_tables_add_up_to_those_of_the_step():
    small = problem(TABLES, Cluster.alike(3, memory_gb=1, mbps=100), dense_bytes=3000.0, hot_every=4)
    planned = plan_tables(small)
    plan = plan_of(small, planned, explain(small, planned.places), {})
    for name in ("ids", "forward", "backward", "hot"):
        total = sum(getattr(table_.predicted, name) for table_ in plan.tables.values())
        assert getattr(plan.predicted, f"{name}_bytes") == pytest.approx(total)
    assert plan.predicted.dense_bytes == pytest.approx(4000.0)
    assert plan.predicted.step_ms == pytest.approx(1e3 * planned.time.step_s)
    hot = sum(choice.hot for choice in planned.places)
    assert plan.embeddings_memory.hot == hot * small.workload.row_bytes
