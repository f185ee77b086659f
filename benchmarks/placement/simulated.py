"""What ``laconic simulate`` says of the steps that this benchmark measures, next to what was measured.

Devices of the simulator are equal and its placements ideal, so three choices of methods have a counterpart here::

    simulated                  measured
    none                       plain: whole tables, pooled float32
    dedup                      row, exact; with bounded and dense for codecs that lose nothing, where such ones were used
    dedup + bounded + dense    row, coded

The simulator is told what its user may know: how often rows are looked up, computing alone, how fast codecs are and how
small they make rows and dense gradients, the rate of links and what headers take of it. It is not told what any placement
took, nor what was fitted to placements: dense gradients travel beside the share of computation that is its default, and nothing else
hides behind computation.
"""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.placement.calibration import CODED, Engine
from benchmarks.placement.case import Case
from benchmarks.placement.jobs import Codec, Sends
from benchmarks.placement.row import Row
from laconic.cost.measure import CodecFigures
from laconic.cost.needed_rows import distinct_rows
from laconic.cost.speeds import EngineSpeeds
from laconic.cost.workload import Workload
from laconic.plan.simulate import Fabric, Methods, ModelLoad, step_cost

__all__ = ["simulate_bytes", "simulate_times"]

_ANY_LINK = Fabric(bytes_per_s=1.0, latency_s=0.0, message_s=0.0)
_LATENCY_S, _MESSAGE_S = 20e-6, 2e-6  # as simulate has it unless told
_PAYLOAD = 1448 / 1514  # of a full frame, as the lab counts it
_GLOO_ALL_TO_ALL = 0.5  # torch's, which plain training uses, takes a link in one direction at a time
_BOTH_WAYS = ("forward", "backward")


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
            if row.kind == "bytes" and row.data == case.name
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
                        direction=" + ".join(directions),
                        predicted_bytes=predicted,
                        measured_bytes=sum(sent[ranks, place, direction] for direction in directions),
                    )
                )
    return rows


def simulate_times(case: Case, engine: Engine, exact: Sends, measured: Sequence[Row]) -> list[Row]:
    """Compare steps at one rate with those that were timed; ``exact`` is what exact contenders sent."""
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
        rows.append(
            Row(
                kind="simulated",
                data=case.name,
                hosts=found.hosts,
                rate_mbit=found.rate_mbit,
                placement=methods.text,
                codec=codec,
                predicted_bytes=cost.ids_bytes + cost.rows_bytes + cost.dense_bytes,
                measured_bytes=found.measured_bytes,
                predicted_ms=1e3 * cost.step_s,
                measured_ms=found.measured_ms,
                samples_per_s=found.samples_per_s,
            )
        )
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
        """Return those of a row of average size; what blocks take is part of the ratios and speeds."""
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
