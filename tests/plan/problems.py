"""Small placement problems, and all plans there are for one."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

from laconic.cost.frequencies import Frequencies
from laconic.cost.speeds import EngineSpeeds
from laconic.cost.topology import Cluster
from laconic.cost.workload import RowCoding, TableLoad, Workload
from laconic.plan.solve.problem import Problem

GB = 1e9


def table(name, rows, *, exponent=1.1, bag=1.0, known=None, forward=1.0, backward=1.0):
    return TableLoad(
        name=name,
        frequencies=Frequencies.zipf(rows, exponent, bag),
        known=rows if known is None else known,
        id_order="ranked",
        forward=RowCoding(ratio=forward),
        backward=RowCoding(ratio=backward),
    )


def problem(
    tables, cluster=None, *, batch=256, dim=16, dense_bytes=0.0, dense_codec_s=0.0, hot_every=1, **speeds
):
    cluster = cluster or Cluster.alike(4, memory_gb=1, mbps=1000, step_ms=1)
    workload = Workload(
        tables=tuple(tables),
        batch=batch,
        dim=dim,
        dense_bytes=dense_bytes,
        dense_codec_s=dense_codec_s,
        hot_every=hot_every,
    )
    return Problem(cluster, workload, EngineSpeeds(**speeds))


def two_kinds(slow_mbps=10, **slow):
    """Two servers and two slow devices."""
    return Cluster.model_validate(
        {
            "devices": [
                {"name": "server", "count": 2, "memory_gb": 1, "mbps": 1000, "step_ms": 1},
                {"name": "slow", "count": 2, "memory_gb": 1, "mbps": slow_mbps, "step_ms": 1, **slow},
            ]
        }
    )


def every_plan(problem):
    """Yield all kinds, owners and numbers of hot rows; no warm rows, or a ninth of the most."""

    def places(t):
        for kind in problem.kinds:
            owners = problem.owners(kind).tolist() if kind.sharding == "table" else [None]
            hot = problem.cuts[t] if kind.can_have_hot_rows else (0,)
            for owner, count in product(owners, hot):
                choice = replace(kind, owner=owner, hot=count)
                most = problem.workload.tables[t].candidates
                warm = {problem.warm_rows(t, choice, rows) for rows in (0, most // 9)} if kind.cold else {0}
                yield from (replace(choice, warm=rows) for rows in sorted(warm))

    return product(*(tuple(places(t)) for t in range(len(problem.costs))))
