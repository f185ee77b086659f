"""``python -m benchmarks placement``: predictions against measurements, plans against others.

It times steps of plans, of other systems' placements with the same codecs, and of plain training,
on rate-limited links. They answer three questions: how good are predictions, do they rank
placements correctly, and what do plans gain?
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.console import Group, RenderableType
from rich.table import Table

from benchmarks.harness import grouped, ratios_of_turns, table_of
from benchmarks.placement.case import Case, Chosen, Row, choose_places, find_cases, write_places
from benchmarks.placement.engine import ALONE, CODED, Engine, Turns, calibrate, time_contenders, usual_ms
from benchmarks.placement.prediction import WORST, measure_traffic, simulate_bytes, simulate_times
from benchmarks.placement.worker import Contender, Placed
from benchmarks.training.benchmark import PROFILE_SHARE
from benchmarks.workers import WorkerPool
from laconic.plan.solve.planner import plan_tables

__all__ = ["Summary", "render", "run_placement_benchmark", "summarize", "time_placements"]

PLAIN = Contender(placement="plain", codec="plain")
_COUNTED = (0.1, 0.5)  # shares of an epoch that lookups are counted on; the smaller one if there is time
_FIRST_MBIT = 200.0
_SAME = 0.03  # rates that differ by less than this are not timed twice
_HOT_EVERY = 8  # steps between two synchronizations of hot rows, where they need not be exact
_DIFFERS = 1.1
_NOT_PLACED = ("alone", "plain")


def run_placement_benchmark(
    data: Path | None,
    *,
    rates_mbit: Sequence[float] = (100.0, 200.0, 1000.0),
    ranks: Sequence[int] = (2, 4, 8),
    full: bool,
    say: Callable[[str], None],
) -> list[Row]:
    """Measure bytes on several numbers of ranks, and time on two hosts; ``full`` takes longer."""
    with TemporaryDirectory(prefix="laconic-plans-") as folder:
        place = Path(folder)
        place.chmod(0o755)
        cases = find_cases(data, place)
        counted = [replace(case, counted=share) for case in cases for share in _COUNTED[0 if full else 1 :]]
        rows = measure_traffic(counted, ranks, steps=12 if full else 6, say=say)
        rows += simulate_bytes(counted, rows)
        timed = [*dict.fromkeys((cases[0], cases[-1]))]
        turns = Turns(rounds=9 if full else 3, further_rounds=9 if full else 3, match_profile=True)
        return rows + time_placements(timed, rates_mbit, turns, place, say)


def time_placements(
    cases: Sequence[Case],
    rates_mbit: Sequence[float],
    turns: Turns,
    folder: Path,
    say: Callable[[str], None],
    *,
    hosts: int = 2,
) -> list[Row]:
    """Time all at these rates, and where plain communicates for the profile's share of a step."""
    rows = []
    with WorkerPool("benchmarks.placement.worker", hosts, rate_mbit=_FIRST_MBIT) as pool:
        for case in cases:
            engine = calibrate(
                pool, case, folder / case.name, say, turns=replace(turns, rounds=turns.rounds + turns.fitting)
            )
            rates = list(rates_mbit)
            if turns.match_profile:
                say(f"{case.name}: looking for the rate that matches the profile")
                matching = _matching_rate(pool, case, engine.alone_ms)
                rates.insert(0, next((rate for rate in rates if abs(rate / matching - 1) <= _SAME), matching))
            for rate in dict.fromkeys(rates):
                say(f"{case.name}: timing at {rate:.0f} Mbit/s")
                pool.set_rate(rate)
                rows += _time(pool, engine, case, rate, turns, folder / case.name / f"{rate:.0f}")
    return rows


def _time(pool: WorkerPool, engine: Engine, case: Case, rate: float, turns: Turns, folder: Path) -> list[Row]:
    exact = Contender(placement="", codec="exact", sends=engine.exact_sends(case, pool.ranks, rate))
    coded = Contender(placement="", codec="coded", sends=CODED)
    chosen: list[Chosen] = []
    for contender in (exact, coded):
        problem = engine.problem(case, pool.ranks, rate, contender.sends)
        chosen += choose_places(case, problem, contender, folder / contender.codec)
    raced = len(chosen)
    # coded rows are so small that copies of them hardly matter
    stale = engine.problem(case, pool.ranks, rate, exact.sends, hot_every=_HOT_EVERY)
    names = [f"planned_every_{_HOT_EVERY}"]
    chosen.append(write_places(case, stale, exact, folder / "exact", plan_tables(stale), names))
    # trainers are kept by name: plans that are alike at two rates share one
    named = [places.contender.model_copy(update={"placement": places.digest}) for places in chosen]
    placed = [[other for other in named[:raced] if other.codec == one.codec] for one in (exact, coded)]
    answers = time_contenders(
        pool,
        case,
        [ALONE, *named, PLAIN],
        turns,
        races=[[ALONE], *placed, [PLAIN]],
    )
    rows = [
        _row(case, pool.ranks, rate, contender, answers[contender.name], None) for contender in (ALONE, PLAIN)
    ]
    # what computing alone takes is measured in the same turns: how fast a machine is just now is no
    # matter of placement
    slower = usual_ms(answers[ALONE.name]) - engine.alone_ms
    planned = {
        contender.codec: answers[contender.name].turn_ms
        for places, contender in zip(chosen, named, strict=True)
        if "planned" in places.names
    }
    for places, contender in zip(chosen, named, strict=True):
        answer = answers[contender.name]
        row = _row(case, pool.ranks, rate, contender, answer, places.predicted_ms + slower)
        over = ratios_of_turns(planned[contender.codec], answer.turn_ms) if turns.rounds > 1 else None
        for name in places.names:
            rows.append(replace(row, placement=name, planned_over=None if name == "planned" else over))
    return rows + simulate_times(case, engine, exact.sends, rows)


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


def _matching_rate(pool: WorkerPool, case: Case, alone_ms: float) -> float:
    """Find the bandwidth at which plain communicates as in the profile."""
    pool.set_rate(_FIRST_MBIT)

    def probe() -> tuple[float, float]:
        return alone_ms, usual_ms(time_contenders(pool, case, [ALONE, PLAIN], Turns(rounds=6))[PLAIN.name])

    return pool.match_rate(PROFILE_SHARE, probe, first=_FIRST_MBIT, tolerance=0.01)


@dataclass(frozen=True, slots=True)
class Summary:
    """Errors of predictions, over all settings."""

    bytes_error: float
    """The largest, of bytes by direction where half of the lookups were counted."""
    median_error: float
    worst_error: float
    predictions: int
    """Number of predicted steps."""
    pairs: int
    """Of placements with the same codec in one setting whose steps differ by more than a tenth, in
    95 of 100 such runs."""
    ranked_right: int


def summarize(rows: Sequence[Row]) -> Summary:
    """Compare what was predicted with what was measured."""
    sent = [
        _error(row.predicted_bytes, row.measured_bytes)
        for row in rows
        if row.kind == "bytes"
        and row.measured_bytes
        and row.direction != WORST
        and row.counted != min(_COUNTED)
    ]
    placed = [row for row in rows if row.kind == "time" and row.predicted_ms is not None]
    errors = [_error(row.predicted_ms, row.measured_ms) for row in placed]
    right = [
        _as_predicted(one, other, way)
        for group in grouped(placed, _setting).values()
        for one, other in combinations(group, 2)
        if (way := _differ(one, other))
    ]
    return Summary(
        bytes_error=max(sent, default=0.0),
        median_error=statistics.median(errors) if errors else 0.0,
        worst_error=max(errors, default=0.0),
        predictions=len(errors),
        pairs=len(right),
        ranked_right=sum(right),
    )


def _setting(row: Row) -> tuple[str, float, str]:
    return row.data, row.rate_mbit or 0.0, row.codec


def _differ(one: Row, other: Row) -> int:
    """Return 1 if the first surely takes a tenth longer, -1 if the second does, else 0."""
    turns = one.turn_ms or (), other.turn_ms or ()
    if min(map(len, turns)) < 2:
        return 0
    _, low, high = ratios_of_turns(*turns)
    return (low > _DIFFERS) - (high < 1 / _DIFFERS)


def _as_predicted(one: Row, other: Row, way: int) -> bool:
    difference = (one.predicted_ms or 0.0) - (other.predicted_ms or 0.0)
    return difference * way > 0


def _error(predicted: float | None, measured: float | None) -> float:
    return abs((predicted or 0.0) / (measured or 1.0) - 1)


def render(rows: Sequence[Row]) -> RenderableType:
    """Make tables of bytes, of times and of simulated figures, and a summary."""
    timed, simulated = ([row for row in rows if row.kind == kind] for kind in ("time", "simulated"))
    sent = grouped((row for row in rows if row.kind == "bytes"), lambda row: (row.data, row.counted))
    tables: list[RenderableType] = [_bytes_table(group) for group in sent.values()]
    tables += [_time_table(group) for group in grouped(timed, lambda row: (row.data, row.rate_mbit)).values()]
    if simulated:
        tables.append(_simulated_table(simulated))
    if timed:
        tables.append(_in_words(summarize(rows)))
    return Group(*tables)


def _bytes_table(rows: Sequence[Row]) -> Table:
    """Show errors by direction and bytes sent, with a line for each placement."""
    counted = "" if rows[0].counted is None else f", {rows[0].counted:.0%} of lookups counted"
    lines = [
        {row.direction: row for row in group}
        for group in grouped(rows, lambda row: (row.hosts, row.placement)).values()
    ]

    def sent(line: dict[str | None, Row]) -> str:
        total = sum(row.measured_bytes or 0.0 for name, row in line.items() if name != WORST)
        return f"{total / 1e3:,.1f} kB"

    return table_of(
        f"bytes per step and rank: {rows[0].data}, exact{counted}; predicted / sent - 1",
        lines,
        ("placement", lambda line: line["ids"].placement),
        ("ranks", lambda line: str(line["ids"].hosts)),
        ("sent", sent),
        ("ids", lambda line: _off(line["ids"])),
        ("rows", lambda line: _off(line["forward"])),
        ("gradients", lambda line: _off(line["backward"])),
        (WORST, lambda line: _off(line[WORST])),
    )


def _off(row: Row) -> str:
    """Write what was predicted over what was measured."""
    predicted = row.predicted_bytes if row.predicted_ms is None else row.predicted_ms
    measured = row.measured_bytes if row.predicted_ms is None else row.measured_ms
    return f"{(predicted or 0.0) / measured - 1:+.1%}" if measured else ""


def _time_table(rows: Sequence[Row]) -> Table:
    first = rows[0]
    alone, plain = (
        next(row.measured_ms or 0.0 for row in rows if row.placement == name) for name in _NOT_PLACED
    )
    return table_of(
        f"step time: {first.data}, {first.hosts} hosts, {first.rate_mbit:.0f} Mbit/s, "
        f"plain communicates {1 - alone / plain:.1%}",
        rows,
        ("placement", lambda row: row.placement),
        ("codec", lambda row: row.codec),
        ("predicted", lambda row: "" if row.predicted_ms is None else f"{row.predicted_ms:.1f} ms"),
        ("measured", lambda row: f"{row.measured_ms:.1f} ms"),
        ("error", lambda row: "" if row.predicted_ms is None else _off(row)),
        ("plain /", lambda row: f"{plain / (row.measured_ms or 1.0):.2f}x"),
        ("samples/s", lambda row: f"{row.samples_per_s:,.0f}"),
        ("planned / (95 %)", lambda row: _interval(row.planned_over)),
    )


def _interval(ratio: tuple[float, float, float] | None) -> str:
    return "" if ratio is None else "{:.3f} ({:.3f} - {:.3f})".format(*ratio)


def _simulated_table(rows: Sequence[Row]) -> Table:
    def figure(row: Row, nbytes: float | None, ms: float | None) -> str:
        return f"{nbytes or 0.0:,.0f} B" if row.predicted_ms is None else f"{ms:.1f} ms"

    return table_of(
        "laconic simulate against what was measured: bytes of embeddings per step and rank, and steps",
        rows,
        ("data", lambda row: row.data),
        ("ranks", lambda row: str(row.hosts)),
        ("Mbit/s", lambda row: "" if row.rate_mbit is None else f"{row.rate_mbit:.0f}"),
        ("methods", lambda row: row.placement),
        ("predicted", lambda row: figure(row, row.predicted_bytes, row.predicted_ms)),
        ("measured", lambda row: figure(row, row.measured_bytes, row.measured_ms)),
        ("error", _off),
    )


def _in_words(summary: Summary) -> str:
    return (
        f"Steps were predicted within {summary.median_error:.1%} (median) and {summary.worst_error:.1%} (worst) of {summary.predictions}; "
        f"bytes within {summary.bytes_error:.1%}. Of {summary.pairs} pairs of placements that surely differ by more than a tenth, "
        f"{summary.ranked_right} were ranked as they are."
    )
