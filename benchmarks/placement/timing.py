"""Step times of plans, of what others would do, and of plain training, on a rate-limited wire."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks.placement.calibration import ALONE, CODED, Engine, calibrate, time_contenders, usual_ms
from benchmarks.placement.case import Case
from benchmarks.placement.contenders import Chosen, choose_places, plan_places
from benchmarks.placement.jobs import Codec, Contender, Placed, Sends
from benchmarks.placement.row import Row
from benchmarks.placement.simulated import simulate_times
from benchmarks.results import ratios_of_turns
from benchmarks.training.benchmark import PROFILE_SHARE
from benchmarks.worker_pool import WorkerPool

__all__ = ["time_placements"]

PLAIN = Contender(placement="plain", codec="plain")
_TRIES = 2
_SAME = 0.03  # rates that differ by less than this are not timed twice
_HOT_EVERY = 8  # steps between two synchronizations of hot rows, where they need not be exact
_FITTING = 2  # more rounds where all predictions depend on what is measured


def time_placements(
    cases: Sequence[Case],
    rates_mbit: Sequence[float],
    *,
    hosts: int,
    match_profile: bool,
    rounds: int,
    steps: int,
    folder: Path,
    say: Callable[[str], None],
) -> list[Row]:
    """Time all at these rates; ``match_profile``: and where plain communicates for the profile's share of a step."""
    rows = []
    with WorkerPool("benchmarks.placement.worker", hosts, rate_mbit=200) as crew:
        for case in cases:
            engine = calibrate(crew, case, folder / case.name, say, rounds=rounds + _FITTING, steps=steps)
            rates = list(rates_mbit)
            if match_profile:
                say(f"{case.name}: looking for the rate that matches the profile")
                matching = _matching_rate(crew, case, engine.alone_ms)
                rates.insert(0, next((rate for rate in rates if abs(rate / matching - 1) <= _SAME), matching))
            for rate in dict.fromkeys(rates):
                say(f"{case.name}: timing at {rate:.0f} Mbit/s")
                crew.set_rate(rate)
                rows += _time(crew, case, engine, rate, rounds, steps, folder / case.name / f"{rate:.0f}")
    return rows


def _time(
    crew: WorkerPool, case: Case, engine: Engine, rate: float, rounds: int, steps: int, folder: Path
) -> list[Row]:
    chosen: list[Chosen] = []
    codecs: dict[Codec, Sends] = {"exact": engine.exact_sends(case, crew.ranks, rate), "coded": CODED}
    for codec, sends in codecs.items():
        problem = engine.problem(case, crew.ranks, rate, sends)
        chosen += choose_places(case, problem, codec, sends, folder / codec)
    raced = len(chosen)
    exact = codecs["exact"]  # coded rows are so small that copies of them hardly matter
    stale = engine.problem(case, crew.ranks, rate, exact, hot_every=_HOT_EVERY)
    chosen.append(plan_places(case, stale, "exact", exact, folder / "exact", f"planned_every_{_HOT_EVERY}"))
    # trainers are kept by name: plans that are alike at two rates share one
    named = [places.contender.model_copy(update={"placement": places.digest}) for places in chosen]
    placed = [[contender for contender in named[:raced] if contender.codec == codec] for codec in codecs]
    answers = time_contenders(
        crew,
        case,
        [ALONE, *named, PLAIN],
        rounds=rounds,
        steps=steps,
        races=[[ALONE], *placed, [PLAIN]],
        further_rounds=rounds,
    )
    rows = [
        _row(case, crew.ranks, rate, contender, answers[contender.name], None) for contender in (ALONE, PLAIN)
    ]
    # what computing alone takes is measured in the same turns: how fast a machine is just now is no matter of placement
    slower = usual_ms(answers[ALONE.name]) - engine.alone_ms
    planned = {
        contender.codec: answers[contender.name].turn_ms
        for places, contender in zip(chosen, named, strict=True)
        if "planned" in places.names
    }
    for places, contender in zip(chosen, named, strict=True):
        answer = answers[contender.name]
        row = _row(case, crew.ranks, rate, contender, answer, places.predicted_ms + slower)
        over = ratios_of_turns(planned[contender.codec], answer.turn_ms) if rounds > 1 else None
        for name in places.names:
            rows.append(replace(row, placement=name, planned_over=None if name == "planned" else over))
    return rows + simulate_times(case, engine, codecs["exact"], rows)


def _row(
    case: Case, hosts: int, rate: float, contender: Contender, answer: Placed, predicted_ms: float | None
) -> Row:
    measured = usual_ms(answer)
    return Row(
        kind="time",
        data=case.name,
        hosts=hosts,
        rate_mbit=rate,
        placement=contender.placement,
        codec=contender.codec,
        predicted_ms=predicted_ms,
        measured_ms=measured,
        turn_ms=answer.turn_ms,
        measured_bytes=sum(answer.bytes.values()) + answer.dense_sent,
        samples_per_s=1e3 * case.batch * hosts / measured,
    )


def _matching_rate(crew: WorkerPool, case: Case, alone_ms: float) -> float:
    """Rate at which plain communicates for the profile's share of a step; computing alone was measured at length."""
    rate, sent, wanted_ms = 200.0, [], alone_ms * PROFILE_SHARE / (1 - PROFILE_SHARE)
    for _ in range(_TRIES):  # what is waited for is about as long as the rate is slow: all tries count
        crew.set_rate(rate)
        answer = time_contenders(crew, case, [ALONE, PLAIN], rounds=6, steps=2)[PLAIN.name]
        sent.append(rate * max(usual_ms(answer) - alone_ms, 1.0))
        rate = float(round(min(max(statistics.median(sent) / wanted_ms, 10), 10_000)))
    return rate
