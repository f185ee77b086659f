"""``python -m benchmarks codecs``: ratio, speed and error of Laconic's codecs and their peers.

Every codec sees the same values and the same absolute bound and is timed in turn with all others in
one process (:mod:`benchmarks.timing`). Every decoded value is compared with the original. Times
include everything that a caller waits for: allocation, the Python wrapper, safety checks.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Group, RenderableType
from rich.table import Table

from benchmarks.codecs.cases import Case, find_dumps, generators, ideal_ratio
from benchmarks.codecs.contenders import ONE_BLOCK, OURS, Contender, contenders_for
from benchmarks.harness import table_of
from benchmarks.timing import BestTimes, Trial, best_times
from laconic.errors import ConfigError

LARGE_BYTES = 64 << 20
LARGE_ROUNDS = 2
SHORTEST_TURN_S = 0.016
TURN_BYTES_S = 125e6  # slower codecs get one call a turn, faster ones several
_RUN = 1 << 22  # values at a time, to keep float64 copies small
_LEGEND = (
    "ratio: float32 bytes / encoded bytes. of ideal: against rows de-duplicated after quantizing + order-0 "
    "entropy. GB/s of float32, one thread, best of all rounds, allocation and wrappers included; CPU time "
    "where a call takes more than 10 ms. error / bound above 1: the bound is broken."
)
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Figures:
    """What was measured of one codec on one case; speeds are of float32 input, on one thread."""

    ratio: float
    encode_gbps: float
    decode_gbps: float
    max_error_over_bound: float


@dataclass(frozen=True, slots=True)
class CaseResult:
    """Figures of all codecs on one case."""

    name: str
    title: str
    blocks: int
    asked: float
    """The bound as the user states it."""
    ideal_ratio: float
    figures: dict[str, Figures | None]
    """Figures by name of the codec; None if a peer is not installed."""
    yardsticks: dict[str, str]
    """The codec that the speeds of each are compared with."""

    def records(self) -> list[dict[str, Any]]:
        """Return one record per codec; figures of an absent peer are None."""
        return [
            {
                "dump": self.name,
                "codec": codec,
                "bound": self.asked,
                **(dict.fromkeys(Figures.__slots__) if found is None else asdict(found)),
                "ideal_ratio": self.ideal_ratio,
            }
            for codec, found in self.figures.items()
        ]


def run_codec_benchmark(
    data: Path | None = None, repeats: int = 7, quick: bool = False, say: Say = lambda text: None
) -> list[CaseResult]:
    """Measure every codec on every dump in ``data`` and on generated data.

    ``repeats`` is the number of rounds. Cases above 64 MB get at most two, with several calls each.
    ``quick`` makes the large generated case 15 times smaller and halves the rounds.
    """
    if repeats < 1:
        raise ConfigError(f"repeats: expected at least 1, got {repeats}; leave it out for 7")
    sources = [*(dump.cases for dump in (find_dumps(data) if data else ())), *generators(quick=quick)]
    rounds = (repeats + 1) // 2 if quick else repeats
    return [measure(case, contenders_for(case), rounds, say) for cases in sources for case in cases()]


def measure(
    case: Case, contenders: Sequence[Contender], rounds: int, say: Say = lambda text: None
) -> CaseResult:
    """Measure some codecs on one case."""
    trials = {c.name: trial for c in contenders if (trial := _prepare(c, case)) is not None}
    names = list(trials)
    seen = {name: _round_trip(case, trial) for name, trial in trials.items()}
    rounds = min(rounds, LARGE_ROUNDS) if case.raw_bytes > LARGE_BYTES else rounds
    turn_s = max(SHORTEST_TURN_S, case.raw_bytes / TURN_BYTES_S)
    times = best_times(list(trials.values()), rounds, turn_s, lambda i: say(f"{case.name}: {names[i]}"))
    found = {name: _figures(case, *seen[name], best) for name, best in zip(names, times, strict=True)}
    ideal = ideal_ratio(case)
    return CaseResult(
        name=case.name,
        title=f"{case.title}, ideal {_ratio(ideal)}",
        blocks=case.blocks,
        asked=case.asked,
        ideal_ratio=ideal,
        figures={c.name: found.get(c.name) for c in contenders},
        yardsticks={c.name: c.yardstick for c in contenders},
    )


def _prepare(contender: Contender, case: Case) -> Trial | None:
    try:
        return contender.prepare(case)
    except ImportError:
        return None


def _round_trip(case: Case, trial: Trial) -> tuple[int, float]:
    """Return payload bytes and the largest error of one round trip."""
    payload = trial.encode()
    return trial.size(payload), max_error(case.values_RD.numpy(), np.asarray(trial.decode(payload)))


def _figures(case: Case, payload_bytes: int, error: float, best: BestTimes) -> Figures:
    return Figures(
        ratio=case.raw_bytes / payload_bytes,
        encode_gbps=case.raw_bytes / best.encode_s / 1e9,
        decode_gbps=case.raw_bytes / best.decode_s / 1e9,
        max_error_over_bound=error / case.bound,
    )


def max_error(original: NDArray[np.float32], decoded: NDArray[np.float32]) -> float:
    """Return the largest difference in float64; infinite if shapes differ or a NaN came back."""
    if original.shape != decoded.shape:
        return math.inf
    a, b = original.ravel(), decoded.ravel()
    worst = 0.0
    for start in range(0, a.size, _RUN):
        run = slice(start, start + _RUN)
        error = float(np.abs(a[run].astype(np.float64) - b[run]).max())
        worst = max(worst, math.inf if math.isnan(error) else error)
    return worst


def render(results: Sequence[CaseResult]) -> RenderableType:
    """Make a table per case, and say how to read them."""
    return Group(*(_table(result) for result in results), _LEGEND)


def _table(result: CaseResult) -> Table:
    def shown(text: Callable[[Figures], str]) -> Callable[[str], str]:
        return lambda codec: "" if (found := result.figures[codec]) is None else text(found)

    def against(figure: str) -> Callable[[str], str]:
        def text(codec: str) -> str:
            found, other = result.figures[codec], result.figures.get(result.yardsticks[codec])
            return f"{getattr(found, figure) / getattr(other, figure):.2f}x" if found and other else ""

        return text

    table = table_of(
        result.title,
        result.figures,
        ("codec", str),
        ("ratio", lambda codec: shown(lambda found: _ratio(found.ratio))(codec) or "absent"),
        ("of ideal", shown(lambda found: f"{found.ratio / result.ideal_ratio:.1%}")),
        ("encode GB/s", shown(lambda found: _speed(found.encode_gbps))),
        ("/ zstd-1", against("encode_gbps")),
        ("decode GB/s", shown(lambda found: _speed(found.decode_gbps))),
        ("/ zstd-1", against("decode_gbps")),
        ("error / bound", shown(lambda found: _error(found.max_error_over_bound))),
    )
    many, one = result.figures.get(OURS), result.figures.get(OURS + ONE_BLOCK)
    if many is not None and one is not None:
        table.caption = (
            f"{result.blocks:,} blocks in one call reach {many.encode_gbps / one.encode_gbps:.0%} (encode) "
            f"and {many.decode_gbps / one.decode_gbps:.0%} (decode) of one block's speed"
        )
    return table


def _error(error: float) -> str:
    if error <= 1:
        return f"{error:.3f}"
    return f"{error:,.3g}" if error >= 1.0005 else ">1.000"


def _ratio(ratio: float) -> str:
    return f"{ratio:,.0f}x" if ratio >= 1000 else f"{ratio:.3g}x" if ratio >= 100 else f"{ratio:.2f}x"


def _speed(gbps: float) -> str:
    return f"{gbps:.3f}" if gbps < 1 else f"{gbps:.2f}"
