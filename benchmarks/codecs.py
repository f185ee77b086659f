"""The codec benchmark: ratio, speed and error of Laconic's codecs and their peers, in one process.

Every codec sees the same values and the same absolute bound, is timed in turn with all
others (:mod:`benchmarks.timing`), and every decoded value is compared with the original.
Times include everything a caller waits for: allocation, the Python wrapper, safety checks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from rich.progress import Progress

from benchmarks.accuracy import max_error
from benchmarks.case import Case
from benchmarks.contenders import Contender, contenders_for
from benchmarks.dumps import Dump, find_dumps
from benchmarks.generated import Generator, generators
from benchmarks.ideal import ideal_ratio
from benchmarks.meter import Meter
from benchmarks.result import CaseResult, Entry, Figures, Result
from benchmarks.results import Machine
from benchmarks.table import render
from benchmarks.timing import BestTimes, Trial, best_times
from laconic.errors import ConfigError

__all__ = ["Result", "measure", "render", "run_codec_benchmark"]

LARGE_BYTES = 64 << 20
LARGE_ROUNDS = 2
SHORTEST_TURN_S = 0.016
TURN_BYTES_S = 125e6  # slower codecs get one call a turn, faster ones several
FIXED_WORK = 2 << 20  # what a case costs whatever its size, in bytes of input


def run_codec_benchmark(
    data: Path | None = None, repeats: int = 7, quick: bool = False, progress: Progress | None = None
) -> Result:
    """Measure every codec on every dump in ``data`` and on generated data.

    ``repeats`` is the number of rounds; cases above 64 MB get at most two, with several calls each. ``quick`` makes
    the large generated case 15 times smaller and halves the rounds. ``progress`` gets a task.
    """
    if repeats < 1:
        raise ConfigError(f"repeats: expected at least 1, got {repeats}; leave it out for 7")
    sources: list[Dump | Generator] = [*(find_dumps(data) if data else ()), *generators(quick=quick)]
    work = [4 * source.rows * source.dim + FIXED_WORK for source in sources]
    meter = Meter(sum(work), progress)
    rounds = (repeats + 1) // 2 if quick else repeats
    results: list[CaseResult] = []
    for source, source_work in zip(sources, work, strict=True):
        meter.show(source.name)
        cases = source.cases()
        each = source_work / len(cases)

        def advance(share: float, what: str, each: float = each) -> None:
            meter.advance(share * each, what)

        results += [measure(case, contenders_for(case), rounds, advance) for case in cases]
    return Result(Machine.this(), tuple(results))


def measure(
    case: Case,
    contenders: Sequence[Contender],
    rounds: int,
    advance: Callable[[float, str], None] = lambda share, what: None,
) -> CaseResult:
    """Measure some codecs on one case; ``advance`` hears of each share of the work as it is done."""
    ideal = ideal_ratio(case)
    trials = {c.name: trial for c in contenders if (trial := _prepare(c, case)) is not None}
    rounds = min(rounds, LARGE_ROUNDS) if case.raw_bytes > LARGE_BYTES else rounds
    share = 1 / max(1, len(trials) * (rounds + 1))
    looks = {}
    for name, trial in trials.items():
        looks[name] = _look(case, trial)
        advance(share, f"{case.name}: {name}")
    names = list(trials)
    turn_s = max(SHORTEST_TURN_S, case.raw_bytes / TURN_BYTES_S)
    times = best_times(
        list(trials.values()), rounds, turn_s, lambda i: advance(share, f"{case.name}: {names[i]}")
    )
    figures = {name: _figures(case, *looks[name], best) for name, best in zip(names, times, strict=True)}
    return CaseResult.of(
        case, ideal, tuple(Entry(c.name, c.yardstick, figures.get(c.name)) for c in contenders)
    )


def _prepare(contender: Contender, case: Case) -> Trial | None:
    try:
        return contender.prepare(case)
    except ImportError:
        return None


def _look(case: Case, trial: Trial) -> tuple[int, float]:
    """Payload bytes and largest error of one round trip."""
    payload = trial.encode()
    return trial.size(payload), max_error(case.values_RD.numpy(), np.asarray(trial.decode(payload)))


def _figures(case: Case, payload_bytes: int, error: float, best: BestTimes) -> Figures:
    return Figures(
        ratio=case.raw_bytes / payload_bytes,
        encode_gbps=case.raw_bytes / best.encode_s / 1e9,
        decode_gbps=case.raw_bytes / best.decode_s / 1e9,
        max_error_over_bound=error / case.bound,
    )
