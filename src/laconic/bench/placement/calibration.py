"""What the engine takes on this machine: fitted to two placements at two rates, which are not those that are reported.

A step beyond computing alone is ``wire / efficiency + k``. What the links carry less than their rate makes
``efficiency``; ``k`` is the latency of rounds, or, if it is negative, computation that hides some of the wire.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from laconic.bench.crew import Crew
from laconic.bench.placement.case import Case
from laconic.bench.placement.contenders import choose_places
from laconic.bench.placement.jobs import Contender, Placed, PlacedSteps
from laconic.placement.engine_speeds import EngineSpeeds
from laconic.placement.problem import Problem
from laconic.placement.topology import Cluster

__all__ = ["MEMORY_SHARE", "Engine", "calibrate", "median_ms", "time_contenders"]

MEMORY_SHARE = 0.6
"""Of all tables that each host has room for."""
ALONE = Contender(placement="alone", codec="exact")
_RATES = (150.0, 600.0)
_ROUNDS = 6  # of messages in a step: what the planner's timeline counts
_LEAST_EFFICIENCY = 0.3


@dataclass(frozen=True, slots=True)
class Engine:
    """One machine and data set, as the planner is told about it."""

    alone_ms: float
    efficiency: float
    latency_us: float
    speeds: EngineSpeeds
    dense_bytes: float
    coded_dense_bytes: float

    def problem(
        self, case: Case, hosts: int, rate_mbit: float, *, coded: bool, hot_every: int = 1
    ) -> Problem:
        """Make the placement problem of these hosts."""
        dense_bytes = self.coded_dense_bytes if coded else self.dense_bytes
        workload = case.workload(coded=coded, dense_bytes=dense_bytes, hot_every=hot_every)
        cluster = Cluster.alike(
            hosts,
            memory_gb=MEMORY_SHARE * workload.table_bytes / 1e9,
            mbps=self.efficiency * rate_mbit,
            latency_us=self.latency_us,
            step_ms=self.alone_ms,
        )
        return Problem(cluster, workload, self.speeds)


def calibrate(
    crew: Crew, case: Case, folder: Path, say: Callable[[str], None], *, rounds: int, steps: int
) -> Engine:
    """Measure; the crew has links whose rate may be set."""
    engine = Engine(50.0, 1.0, 0.0, EngineSpeeds(gather_ns=0, update_ns=0, overlap=0), 0.0, 0.0)
    chosen = {
        codec: {
            name: places
            for places in choose_places(
                case, engine.problem(case, crew.ranks, 300, coded=codec == "coded"), codec, folder / codec
            )
            for name in places.names
        }
        for codec in ("exact", "coded")
    }
    fitting = [name for name in ("row", "table", "threshold") if name in chosen["exact"]]  # in memory
    exact = [chosen["exact"][name] for name in fitting[:2]]
    coded = chosen["coded"]["row"]
    wires, waits, alone = [], [], []
    answers: dict[str, Placed] = {}
    for rate in _RATES:
        say(f"{case.name}: calibrating at {rate:.0f} Mbit/s")
        crew.set_rate(f"{rate:.0f}mbit")
        contenders = [ALONE, *(places.contender for places in exact), coded.contender]
        answers = time_contenders(crew, case, contenders, rounds=rounds, steps=steps)
        alone.append(median_ms(answers[ALONE.name]))
        for places in exact:
            answer = answers[places.contender.name]
            engine = replace(engine, dense_bytes=answer.dense_bytes)
            problem = engine.problem(case, crew.ranks, rate, coded=False)
            wires.append(1e3 * problem.step(places.choices).wire_s)
            waits.append(median_ms(answer) - alone[-1])
    slope, k = np.polyfit(wires, waits, 1)
    alone_ms = statistics.fmean(alone)
    answer = answers[coded.contender.name]
    before = answer.before["forward"] + answer.before["backward"]
    return Engine(
        alone_ms=alone_ms,
        efficiency=min(1 / max(float(slope), 1.0), 1.0) if slope > 0 else _LEAST_EFFICIENCY,
        latency_us=1e3 * max(float(k), 0.0) / _ROUNDS,
        speeds=EngineSpeeds(
            encode_gb_s=before / (1e6 * answer.codec_ms["encode"]),
            decode_gb_s=before / (1e6 * answer.codec_ms["decode"]),
            gather_ns=0,  # both are part of computing alone
            update_ns=0,
            overlap=min(max(-float(k), 0.0) / alone_ms, 1.0),
        ),
        dense_bytes=answer.dense_bytes,
        coded_dense_bytes=answer.dense_sent * crew.ranks / (2 * (crew.ranks - 1)),
    )


def time_contenders(
    crew: Crew, case: Case, contenders: Sequence[Contender], *, rounds: int, steps: int
) -> dict[str, Placed]:
    """Time all of them, in turns."""
    job = PlacedSteps(data=case.data, contenders=tuple(contenders), rounds=rounds, steps=steps)
    return {answer.name: answer for answer in map(Placed.model_validate, crew.ask("steps", job))}


def median_ms(answer: Placed) -> float:
    """Of all steps."""
    return statistics.median(time for turn in answer.round_ms for time in turn)
