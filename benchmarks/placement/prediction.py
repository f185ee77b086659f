"""Predicted bytes against those that are sent, and the simulator's prediction of the same steps.

**Bytes** are predicted by the model that plans, from lookups that were counted on a part of an
epoch. The batches behind it are rehearsed, which sends what as many ranks would, bit for bit.

**The simulator** has equal devices and ideal placements, so three places of methods have a
counterpart here::

    simulated                  measured
    none                       plain: table-wise, pooled float32
    dedup                      row, exact; with bounded and dense if lossless codecs were used
    dedup + bounded + dense    row, coded

The simulator is told what its user may know: frequencies of rows, computation alone, speeds of
codecs and how small they make rows and dense gradients, the bandwidth of links and the share that
headers take. It is not told the time of any placement, nor anything that was fitted to placements.
Its default share of computation hides dense gradients, and nothing else is hidden.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from benchmarks.placement.case import Case, Row
from benchmarks.placement.engine import CODED, MEMORY_SHARE, Engine
from benchmarks.placement.worker import Codec, Sends
from laconic.adapt.compression import Compression
from laconic.cost.load import Place, Resource
from laconic.cost.measure import CodecFigures
from laconic.cost.needed_rows import distinct_rows
from laconic.cost.speeds import EngineSpeeds
from laconic.cost.topology import Cluster
from laconic.cost.workload import Workload
from laconic.exchange import SGD, Table
from laconic.exchange.ledger import Ledger
from laconic.exchange.ranks.world import LocalWorld
from laconic.exchange.tables.placement import RowPlacement
from laconic.nn import ShardedEmbeddings
from laconic.plan.access.access import hottest_ids
from laconic.plan.simulate import Fabric, Methods, ModelLoad, step_cost
from laconic.plan.solve.baselines import row_wise, threshold
from laconic.plan.solve.problem import Problem

__all__ = [
    "WORST",
    "measure_traffic",
    "simulate_bytes",
    "simulate_times",
]

WORST = "worst table"
"""Direction of rows about one table."""
_RATE = 200.0  # Mbit/s that plans are made for
_SMALL_ROWS = 2000
_LARGE_SHARE = 0.01  # of all bytes, from which on the error of a table counts
_ANY_LINK = Fabric(bytes_per_s=1.0, latency_s=0.0, message_s=0.0)
_LATENCY_S, _MESSAGE_S = 20e-6, 2e-6  # as simulate has it unless told
_PAYLOAD = 1448 / 1514  # of a full frame, as the lab counts it
_GLOO_ALL_TO_ALL = 0.5  # torch's, which plain training uses, takes a link in one direction at a time
_BOTH_WAYS = ("forward", "backward")
_SENDS = {"ids": Resource.IDS_OUT, "forward": Resource.FORWARD_OUT, "backward": Resource.BACKWARD_OUT}


def measure_traffic(
    cases: Sequence[Case], ranks: Sequence[int], *, steps: int, say: Callable[[str], None]
) -> list[Row]:
    """Compare table-wise, row-wise and replicated tables and frequent rows on these ranks."""
    rows = []
    for case in cases:
        workload = case.workload(Sends(), dense_bytes=0.0)
        memory = MEMORY_SHARE * workload.table_bytes / 1e9
        for count in ranks:
            say(f"{case.name}: bytes of {count} ranks")
            problem = Problem(Cluster.alike(count, memory_gb=memory, mbps=_RATE), workload)
            tables = range(len(workload.tables))
            placements = {
                "table": [Place("table", "pooled", owner=t % count) for t in tables],
                "table_rows": [Place("table", owner=t % count) for t in tables],
                "row": row_wise(problem),
                "small_replicated": [
                    Place("replicated" if table.rows <= _SMALL_ROWS else "row") for table in workload.tables
                ],
                "threshold": threshold(problem),
            }
            for name, places in placements.items():
                rows += _compare(case, problem, name, places, steps)
    return rows


def _compare(case: Case, problem: Problem, name: str, places: Sequence[Place], steps: int) -> list[Row]:
    ledger, taken = _rehearse(case, problem, places, steps)
    ranks, total_KN = problem.ranks, problem.total_KN(places)
    compared = {
        direction: (float(total_KN[resource].mean()), account.sent / (taken * ranks))
        for (direction, resource), account in zip(_SENDS.items(), ledger.accounts.values(), strict=True)
    }
    sent = {table.name: 0.0 for table in problem.workload.tables}
    for direction, account in ledger.accounts.items():
        for part, nbytes in zip(ledger.names, account.after_T.tolist(), strict=True):
            table = part.removesuffix(" (hot)")
            if direction != "ids" or part != table:  # ids of few rows are few bytes, and headers count
                sent[table] += nbytes / (taken * ranks)
    expected = {}
    for t, (load, place) in enumerate(zip(problem.workload.tables, places, strict=True)):
        told = problem.load(t, place).sent
        expected[load.name] = told.forward + told.backward + told.hot
    large = [table for table, nbytes in sent.items() if nbytes > _LARGE_SHARE * sum(sent.values())]
    worst = max(large, key=lambda table: abs(expected[table] / sent[table] - 1))
    compared[WORST] = (expected[worst], sent[worst])
    return [
        Row(
            kind="bytes",
            data=case.name,
            hosts=ranks,
            placement=name,
            codec="exact",
            counted=case.counted,
            direction=direction,
            predicted_bytes=predicted,
            measured_bytes=measured,
        )
        for direction, (predicted, measured) in compared.items()
    ]


def _rehearse(case: Case, problem: Problem, places: Sequence[Place], steps: int) -> tuple[Ledger, int]:
    """Let as many ranks send; returns what they sent, and in how many steps."""
    placed, dim = list(zip(problem.workload.tables, places, strict=True)), case.model.dim
    tables = [
        Table(load.name, load.rows, dim, sharding=place.sharding, send=place.send, owner=place.owner)
        for load, place in placed
    ]
    hot = {
        load.name: hottest_ids(case.access.table(load.name), place.hot) for load, place in placed if place.hot
    }
    embeddings = ShardedEmbeddings(
        tables,
        Compression(rows=None, gradients=None),
        optimizer=SGD(0.0),
        placement=RowPlacement(hot=hot),
        world=LocalWorld(problem.ranks, patience_s=0),
    )
    taken = 0
    for lookups in case.batches(problem.ranks, steps):
        embeddings(lookups).sum().backward()
        embeddings.optimizer.step()
        taken += 1
    embeddings.close()
    return embeddings.engines[0].ledger, taken


def simulate_bytes(cases: Sequence[Case], measured: Sequence[Row]) -> list[Row]:
    """Compare bytes of embeddings per step and rank with those of rows of kind ``bytes``.

    Ids of pooled vectors are left out: the simulator's travel raw, those measured coded.
    """
    rows = []
    for case in cases:
        workload = case.workload(Sends(), dense_bytes=0.0)
        model = _model(workload, compute_s=0.0)
        sent = {
            (row.hosts, row.placement, row.direction): row.measured_bytes or 0.0
            for row in measured
            if (row.kind, row.data, row.counted) == ("bytes", case.name, case.counted)
        }
        for ranks in dict.fromkeys(hosts for hosts, _, _ in sent):
            pooled = step_cost(model, _ANY_LINK, ranks, Methods()).rows_bytes
            dealt = step_cost(model, _ANY_LINK, ranks, Methods(dedup=True))
            for methods, place, directions, predicted in (
                (Methods(), "table", _BOTH_WAYS, pooled),
                (Methods(dedup=True), "row", ("ids", *_BOTH_WAYS), dealt.rows_bytes + dealt.ids_bytes),
            ):
                rows.append(
                    Row(
                        kind="simulated",
                        data=case.name,
                        hosts=ranks,
                        placement=methods.text,
                        codec="exact",
                        counted=case.counted,
                        direction=" + ".join(directions),
                        predicted_bytes=predicted,
                        measured_bytes=sum(sent[ranks, place, direction] for direction in directions),
                    )
                )
    return rows


def simulate_times(case: Case, engine: Engine, exact: Sends, measured: Sequence[Row]) -> list[Row]:
    """Compare simulated steps at one bandwidth with timed ones; ``exact`` has their codecs."""
    timed = {(row.placement, row.codec): row for row in measured}
    alone_s = 1e-3 * (timed["alone", "exact"].measured_ms or 0.0)
    rows = []
    compared: tuple[tuple[str, Codec, Sends], ...] = (
        ("plain", "plain", Sends()),
        ("row", "exact", exact),
        ("row", "coded", CODED),
    )
    for placement, codec, sends in compared:
        found = timed.get((placement, codec))
        # dealt rows need memory for a share of all tables, and may lack it
        if found is None or found.rate_mbit is None:
            continue
        methods = Methods(
            dedup=placement == "row", bounded=sends.rows != "exact", dense=sends.dense != "exact"
        )
        network = Fabric(
            bytes_per_s=_PAYLOAD * found.rate_mbit * 1e6 / 8,
            latency_s=_LATENCY_S,
            message_s=_MESSAGE_S,
            all_to_all=_GLOO_ALL_TO_ALL if codec == "plain" else 1.0,
        )
        model = _model(case.workload(sends, dense_bytes=engine.dense["exact"].bytes), alone_s, engine, sends)
        cost = step_cost(model, network, found.hosts, methods)
        simulated = replace(found, kind="simulated", placement=methods.text, turn_ms=None, planned_over=None)
        sent = cost.ids_bytes + cost.rows_bytes + cost.dense_bytes
        rows.append(replace(simulated, predicted_bytes=sent, predicted_ms=1e3 * cost.step_s))
    return rows


def _model(
    workload: Workload, compute_s: float, engine: Engine | None = None, sends: Sends | None = None
) -> ModelLoad:
    """Describe what is trained; without an engine nothing is coded."""
    sends = sends or Sends()
    ratio, seconds = 1.0, 0.0
    if engine is not None and sends.dense != "exact":
        dense = engine.dense[sends.dense]
        ratio, seconds = workload.dense_bytes / dense.bytes, dense.work_s / workload.dense_bytes
    speeds = engine.codec_gb_s.get(sends.rows) if engine is not None else None
    row_s = 0.0 if speeds is None else sum(1e-9 * workload.vector_bytes / gb_s for gb_s in speeds)
    needed_T = [
        distinct_rows(table.frequencies, workload.batch * table.frequencies.lookups_per_sample)
        for table in workload.tables
    ]

    def figures(ratio_T: Sequence[float]) -> CodecFigures:
        """Return figures of an average row; ratios and speeds include what blocks take."""
        sent = sum(needed / ratio for needed, ratio in zip(needed_T, ratio_T, strict=True))
        return CodecFigures(
            row_bytes=workload.vector_bytes * sent / sum(needed_T), block_bytes=0.0, row_s=row_s, block_s=0.0
        )

    return ModelLoad(
        frequencies_T=tuple(table.frequencies for table in workload.tables),
        dim=workload.dim,
        samples=workload.batch,
        compute_s=compute_s,
        dense_bytes=workload.dense_bytes,
        forward=figures([table.forward.ratio for table in workload.tables]),
        backward=figures([table.backward.ratio for table in workload.tables]),
        codec_threads=1.0,
        dense_ratio=ratio,
        dense_s_per_byte=seconds,
        hot_bytes=0.0,
        sync_every=1,
        overlap=0.0,
        dense_overlap=EngineSpeeds().dense_overlap,
    )
