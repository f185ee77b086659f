"""Constants of this machine with one data set: measured, and given to the planner as a problem.

They are fitted to a few placements at two bandwidths, which are not those that are reported. A step
beyond computation is ``rows / efficiency + max(0, dense / efficiency - w) + k``. Dense gradients
travel beside the backward pass, which hides ``w`` of them. ``efficiency`` is the share of the
bandwidth that links reach. ``k`` is the latency of rounds or, if it is negative, computation that
hides some of the rest. Coded dense gradients do not use torch's all-reduce, so they have their own
figures. Time of codecs and bytes of dense gradients are measured with row-wise tables, and so is
the share of computation that hides prefetched rows.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.placement.case import Case, Chosen, choose_places
from benchmarks.placement.worker import Contender, Placed, PlacedSteps, Sends
from benchmarks.workers import WorkerPool
from laconic.cost.link import ring_bytes
from laconic.cost.speeds import EngineSpeeds
from laconic.cost.timeline import ROUNDS
from laconic.cost.topology import Cluster
from laconic.plan.plan_file import read_plan, write_plan
from laconic.plan.solve.planner import plan_tables
from laconic.plan.solve.problem import Problem

__all__ = [
    "ALONE",
    "CODED",
    "MEMORY_SHARE",
    "DenseCost",
    "Engine",
    "Links",
    "Turns",
    "calibrate",
    "fit_links",
    "time_contenders",
    "usual_ms",
]

MEMORY_SHARE = 0.6
"""Share of all tables that each host has room for."""
ALONE = Contender(placement="alone", codec="exact")
CODED = Sends(rows="bounded", dense="levels")
_LOSSLESS = Sends(rows="lossless", dense="lossless")
_RATES = (150.0, 600.0)
_LEAST_EFFICIENCY = 0.3
_LEAST_SHARE = 0.1  # of what a coded exchange computes that is the codec's, whatever the noise says


@dataclass(frozen=True, slots=True)
class Turns:
    """Numbers of rounds and steps that contenders are timed for."""

    rounds: int = 3
    steps: int = 2
    """Steps of a turn. What disturbs a shared machine lasts longer: many short turns dodge it
    better than few long ones."""
    further_rounds: int = 0
    """Rounds of those that lead a race."""
    fitting: int = 2
    """More rounds where all predictions depend on what is measured."""
    match_profile: bool = False
    """Whether to look for the rate at which plain communicates as much as in SC'24's profile."""


@dataclass(frozen=True, slots=True)
class DenseCost:
    """Bytes and work of dense gradients in a step."""

    bytes: float
    """Bytes of the tensors as they are sent."""
    work_s: float
    """Seconds that a rank computes for it."""


@dataclass(frozen=True, slots=True)
class Links:
    """Fitted constants of the links."""

    efficiency: float = 1.0
    latency_us: float = 0.0
    overlap: float = 0.0
    dense_overlap: float = 0.0


@dataclass(frozen=True, slots=True)
class Engine:
    """Constants of one machine and data set, for the planner."""

    alone_ms: float
    summed: Links
    """Constants of links if torch sums dense gradients."""
    coded: Links
    """Constants of links if dense gradients are coded."""
    dense: dict[str, DenseCost]
    """Cost of dense gradients, by how they are sent."""
    codec_gb_s: dict[str, tuple[float, float]]
    """Encoding and decoding of rows, by what they are sent as."""
    prefetch_overlap: float = 0.0
    """Share of computation during which rows of the next step can travel."""

    def problem(
        self, case: Case, hosts: int, rate_mbit: float, sends: Sends, *, hot_every: int = 1
    ) -> Problem:
        """Make the placement problem of these hosts."""
        dense, links = self.dense[sends.dense], self.summed if sends.dense == "exact" else self.coded
        workload = case.workload(
            sends, dense_bytes=dense.bytes, dense_codec_s=dense.work_s, hot_every=hot_every
        )
        cluster = Cluster.alike(
            hosts,
            memory_gb=MEMORY_SHARE * workload.table_bytes / 1e9,
            mbps=links.efficiency * rate_mbit,
            latency_us=links.latency_us,
            step_ms=self.alone_ms,
        )
        encode, decode = self.codec_gb_s.get(sends.rows, (1.0, 1.0))  # what travels as it is needs none
        speeds = EngineSpeeds(
            encode_gb_s=encode,
            decode_gb_s=decode,
            gather_ns=0,  # both are part of computing alone
            update_ns=0,
            overlap=links.overlap,
            dense_overlap=links.dense_overlap,
            prefetch_overlap=self.prefetch_overlap,
        )
        return Problem(cluster, workload, speeds)

    def exact_sends(self, case: Case, hosts: int, rate_mbit: float) -> Sends:
        """Choose the lossless codecs that are predicted to be fastest for a planner's places."""
        choices = plan_tables(self.problem(case, hosts, rate_mbit, Sends())).places
        every = [
            Sends(rows=rows, dense=dense) for rows in ("exact", "lossless") for dense in ("exact", "lossless")
        ]
        return min(every, key=lambda sends: self.problem(case, hosts, rate_mbit, sends).step(choices).step_s)


def calibrate(pool: WorkerPool, case: Case, folder: Path, say: Callable[[str], None], turns: Turns) -> Engine:
    """Measure; the pool has links whose rate may be set."""
    nothing = DenseCost(0.0, 0.0)
    ideal = Links()
    engine = Engine(50.0, ideal, ideal, {"exact": nothing, "levels": nothing}, {"bounded": (2.0, 3.0)})
    chosen = {}
    for contender in (
        Contender(placement="", codec="exact"),
        Contender(placement="", codec="coded", sends=CODED),
    ):
        problem = engine.problem(case, pool.ranks, 300, contender.sends)
        found = choose_places(case, problem, contender, folder / contender.codec)
        chosen[contender.codec] = {name: places for places in found for name in places.names}
    fitting = [name for name in ("row", "table", "threshold") if name in chosen["exact"]]  # in memory
    exact = [chosen["exact"][name] for name in fitting[:2]]
    row, coded = chosen["exact"]["row"].contender, chosen["coded"]["row"].contender
    lossless = row.model_copy(update={"sends": _LOSSLESS})
    ahead = _prefetching(lossless, folder / "exact" / "row_ahead.toml")
    contenders = [ALONE, *(places.contender for places in exact), lossless, ahead, coded]
    answers: dict[float, dict[str, Placed]] = {}
    for rate in _RATES:
        say(f"{case.name}: calibrating at {rate:.0f} Mbit/s")
        pool.set_rate(rate)
        answers[rate] = time_contenders(pool, case, contenders, turns)
    last = answers[_RATES[-1]]
    engine = Engine(
        statistics.fmean(usual_ms(found[ALONE.name]) for found in answers.values()),
        ideal,
        ideal,
        dense={
            "exact": DenseCost(last[row.name].dense_bytes, 0.0),
            "lossless": _dense_cost(last[lossless.name], pool.ranks),
            "levels": _dense_cost(last[coded.name], pool.ranks),
        },
        codec_gb_s={
            "lossless": _codec_gb_s(last[lossless.name], last[row.name]),
            "bounded": _codec_gb_s(last[coded.name], last[row.name]),
        },
        prefetch_overlap=max(
            _window(case.model.dim, found[ALONE.name], found[lossless.name], found[ahead.name])
            for found in answers.values()
        ),
    )

    def links(*timed: tuple[str, Sends, Chosen]) -> Links:
        """Fit what ideal links do not explain."""
        points = []
        for rate, found in answers.items():
            for name, sends, places in timed:
                step = engine.problem(case, pool.ranks, rate, sends).step(places.places)
                dense_ms, took = 1e3 * step.phases["dense"], usual_ms(found[name])
                waited = took - usual_ms(found[ALONE.name]) - 1e3 * (step.busy_s - step.compute_s)
                points.append((1e3 * step.wire_s - dense_ms, dense_ms, waited, took))
        return fit_links(np.array(points), engine.alone_ms)

    return replace(
        engine,
        summed=links(*((places.contender.name, Sends(), places) for places in exact)),
        coded=links(
            (lossless.name, _LOSSLESS, chosen["exact"]["row"]), (coded.name, CODED, chosen["coded"]["row"])
        ),
    )


def fit_links(points: NDArray[np.float64], alone_ms: float) -> Links:
    """Fit links to points, each with milliseconds of rows, dense gradients, waiting and the step.

    Those of rows and dense gradients are on ideal links. Values of the hidden share are tried out;
    the rest is a line, by least squares of errors relative to steps.
    """
    rows, dense, waited, took = points.T
    tried = []
    for hidden in np.linspace(0, 1, 101):
        for slope in np.linspace(1, 1 / _LEAST_EFFICIENCY, 48):
            wire = slope * rows + np.maximum(slope * dense - hidden * alone_ms, 0)
            k = float(np.average(waited - wire, weights=took**-2.0))
            tried.append((float((((wire + k - waited) / took) ** 2).sum()), hidden, slope, k))
    _, hidden, slope, k = min(tried)  # of equals the one that hides least
    return Links(
        efficiency=float(1 / slope),
        latency_us=1e3 * max(k, 0.0) / ROUNDS,
        overlap=min(max(-k, 0.0) / alone_ms, 1.0),
        dense_overlap=float(hidden),
    )


def _prefetching(contender: Contender, path: Path) -> Contender:
    """Return the same, but that rows travel early."""
    assert contender.plan is not None, "a placement comes from a plan"
    plan, hot, warm = read_plan(contender.plan)
    write_plan(path, plan.model_copy(update={"look_ahead": True}), hot, warm)
    return contender.model_copy(update={"placement": f"{contender.placement} ahead", "plan": path})


def _window(dim: int, alone: Placed, without: Placed, ahead: Placed) -> float:
    """Share of computation that hides what looking ahead gains, turn by turn, and what it takes."""
    rows = ahead.before["forward"] / (4 * dim)
    pairs = zip(without.turn_ms, ahead.turn_ms, strict=True)
    gained_ms = statistics.median(one - other for one, other in pairs)
    gained_ms += 1e-6 * EngineSpeeds().prefetch_ns * rows
    return min(max(gained_ms / usual_ms(alone), 0.0), 1.0)


def _dense_cost(answer: Placed, ranks: int) -> DenseCost:
    return DenseCost(answer.dense_sent / ring_bytes(1.0, ranks), 1e-3 * answer.dense_work_ms)


def _codec_gb_s(coded: Placed, exact: Placed) -> tuple[float, float]:
    """Return speeds of codecs, from the time of a coded exchange beyond that of an exact one."""
    before = coded.before["forward"] + coded.before["backward"]
    spent = {
        way: max(ms - exact.codec_ms[way], _LEAST_SHARE * ms, 1e-6) for way, ms in coded.codec_ms.items()
    }
    return before / (1e6 * spent["encode"]), before / (1e6 * spent["decode"])


def time_contenders(
    pool: WorkerPool,
    case: Case,
    contenders: Sequence[Contender],
    turns: Turns,
    races: Sequence[Sequence[Contender]] = (),
) -> dict[str, Placed]:
    """Time all of them, in turns, and those that lead a race for longer."""
    job = PlacedSteps(
        data=case.data,
        batch=case.batch,
        model=case.model,
        contenders=tuple(contenders),
        rounds=turns.rounds,
        steps=turns.steps,
        races=tuple(tuple(contender.name for contender in race) for race in races),
        further_rounds=turns.further_rounds,
    )
    return {answer.name: answer for answer in pool.ask(job, Placed)}


def usual_ms(answer: Placed) -> float:
    """Return the lower quartile of turns: other load only adds to some, and luck does not count."""
    return float(np.quantile(answer.turn_ms, 0.25))
