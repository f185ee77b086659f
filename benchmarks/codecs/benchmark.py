"""The codec benchmark: ratio, speed and error of Laconic's codecs and their peers, in one process.

Every codec sees the same values and the same absolute bound, is timed in turn with all
others (:mod:`benchmarks.timing`), and every decoded value is compared with the original.
Times include everything a caller waits for: allocation, the Python wrapper, safety checks.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.progress import Progress
from rich.table import Table
from rich.text import Text

from benchmarks.codecs.cases import Case, Dump, Generator, find_dumps, generators, ideal_ratio
from benchmarks.codecs.contenders import ONE_BLOCK, OURS, Contender, contenders_for
from benchmarks.results import Machine
from benchmarks.timing import BestTimes, Trial, best_times
from laconic.errors import ConfigError
from laconic.files import finite

LARGE_BYTES = 64 << 20
LARGE_ROUNDS = 2
SHORTEST_TURN_S = 0.016
TURN_BYTES_S = 125e6  # slower codecs get one call a turn, faster ones several
FIXED_WORK = 2 << 20  # what a case costs whatever its size, in bytes of input
_RUN = 1 << 22  # values at a time, to keep float64 copies small


@dataclass(frozen=True, slots=True)
class Figures:
    """How one codec did on one case; speeds are of float32 input, on one thread."""

    ratio: float
    encode_gbps: float
    decode_gbps: float
    max_error_over_bound: float


@dataclass(frozen=True, slots=True)
class CodecEntry:
    """One line of a table."""

    codec: str
    yardstick: str
    """The codec of the same case that its speeds are compared with."""
    figures: Figures | None
    """None: the peer is not installed."""


@dataclass(frozen=True, slots=True)
class CaseResult:
    """One table: a case without its values, and everybody's figures."""

    name: str
    rows: int
    dim: int
    blocks: int
    asked: float
    unit: str
    bound: float
    ideal_ratio: float
    entries: tuple[CodecEntry, ...]

    def figures(self, codec: str) -> Figures | None:
        """Figures of a codec by name; None if it was absent or took no part."""
        return next((entry.figures for entry in self.entries if entry.codec == codec), None)


@dataclass(frozen=True, slots=True)
class CodecResult:
    """All tables of one run."""

    machine: Machine
    cases: tuple[CaseResult, ...]

    @property
    def rows(self) -> list[dict[str, str | float | None]]:
        """One record per case and codec; null for what an absent peer, or an infinity, has to say."""
        return [_record(case, entry) for case in self.cases for entry in case.entries]


def _record(case: CaseResult, entry: CodecEntry) -> dict[str, str | float | None]:
    figures = asdict(entry.figures) if entry.figures else {}
    numbers = {name: figures.get(name) for name in Figures.__slots__} | {"ideal_ratio": case.ideal_ratio}
    return {"dump": case.name, "codec": entry.codec, "bound": case.asked, **finite(numbers)}


def run_codec_benchmark(
    data: Path | None = None, repeats: int = 7, quick: bool = False, progress: Progress | None = None
) -> CodecResult:
    """Measure every codec on every dump in ``data`` and on generated data.

    ``repeats`` is the number of rounds; cases above 64 MB get at most two, with several calls each. ``quick`` makes
    the large generated case 15 times smaller and halves the rounds. ``progress`` gets a task.
    """
    if repeats < 1:
        raise ConfigError(f"repeats: expected at least 1, got {repeats}; leave it out for 7")
    sources: list[Dump | Generator] = [*(find_dumps(data) if data else ()), *generators(quick=quick)]
    work = [4 * source.rows * source.dim + FIXED_WORK for source in sources]
    meter = _Meter(sum(work), progress)
    rounds = (repeats + 1) // 2 if quick else repeats
    results: list[CaseResult] = []
    for source, source_work in zip(sources, work, strict=True):
        meter.show(source.name)
        cases = source.cases()
        each = source_work / len(cases)

        def advance(share: float, what: str, each: float = each) -> None:
            meter.advance(share * each, what)

        results += [measure(case, contenders_for(case), rounds, advance) for case in cases]
    return CodecResult(Machine.this(), tuple(results))


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
    return CaseResult(
        **{name: getattr(case, name) for name in ("name", "rows", "dim", "blocks", "asked", "unit", "bound")},
        ideal_ratio=ideal,
        entries=tuple(CodecEntry(c.name, c.yardstick, figures.get(c.name)) for c in contenders),
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


def max_error(original: NDArray[np.float32], decoded: NDArray[np.float32]) -> float:
    """Largest absolute difference, in float64; infinite if the shapes differ or a NaN came back."""
    if original.shape != decoded.shape:
        return math.inf
    a, b = original.ravel(), decoded.ravel()
    worst = 0.0
    for start in range(0, a.size, _RUN):
        run = slice(start, start + _RUN)
        error = float(np.abs(a[run].astype(np.float64) - b[run]).max())
        worst = max(worst, math.inf if math.isnan(error) else error)
    return worst


class _Meter:
    """Percent of the work that is done, shown by Rich if somebody looks: steps differ in length by a factor of 10,000."""

    def __init__(self, work: float, progress: Progress | None) -> None:
        self._percent = 100 / work
        self._progress = progress
        self._task = progress.add_task("", total=100) if progress else None

    def show(self, what: str) -> None:
        """Say what is under way."""
        self._update(what, 0)

    def advance(self, work: float, what: str) -> None:
        """Count work as done."""
        self._update(what, work * self._percent)

    def _update(self, what: str, percent: float) -> None:
        if self._progress is not None and self._task is not None:
            self._progress.update(self._task, description=what, advance=percent)


_HEADINGS = "ratio", "of\nideal", "encode\nGB/s", "vs\nzstd-1", "decode\nGB/s", "vs\nzstd-1", "error\n/ bound"


def render(result: CodecResult) -> RenderableType:
    """Show the machine, a table per case made for 100 columns, and how to read them."""
    parts: list[RenderableType] = [Text.assemble(("machine  ", "bold"), str(result.machine))]
    for case in result.cases:
        parts += [Text(), _title(case), _table(case), *_block_share(case)]
    return Group(*parts, Text(), Text(_LEGEND, style="dim"))


_LEGEND = (
    "ratio: float32 bytes / encoded bytes, the best that keeps the bound in green. of ideal: against "
    "rows de-duplicated after quantizing + order-0 entropy. GB/s of float32, one thread, best of all "
    "rounds, allocation and wrappers included; CPU time where a call takes more than 10 ms. "
    "error / bound above 1: the bound is broken."
)


def _title(case: CaseResult) -> Text:
    return Text.assemble(
        (case.name, "bold cyan"),
        f"   {case.rows:,} x {case.dim}   bound {case.asked:g} {case.unit}",
        f" = {case.bound:.3g}" if case.bound != case.asked else "",
        f"   ideal {_ratio(case.ideal_ratio)}",
    )


def _table(case: CaseResult) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False, header_style="dim", show_edge=False, padding=(0, 1, 0, 0))
    table.add_column("codec", min_width=27, vertical="bottom")
    for heading in _HEADINGS:
        table.add_column(heading, justify="right", min_width=8, vertical="bottom")
    best = max((e.figures.ratio for e in case.entries if e.figures and _keeps_bound(e.figures)), default=0.0)
    for entry in case.entries:
        style = "bold" if entry.codec.startswith(OURS) else ""
        table.add_row(entry.codec, *_cells(case, entry, best), style=style)
    return table


def _cells(case: CaseResult, entry: CodecEntry, best: float) -> list[Text]:
    figures, yardstick = entry.figures, case.figures(entry.yardstick)
    if figures is None:
        return [Text("absent", style="dim")]
    return [
        Text(_ratio(figures.ratio), style="bold green" if figures.ratio == best else ""),
        Text(f"{figures.ratio / case.ideal_ratio:.1%}"),
        Text(_speed(figures.encode_gbps)),
        Text(_times(figures.encode_gbps, yardstick.encode_gbps if yardstick else None), style="dim"),
        Text(_speed(figures.decode_gbps)),
        Text(_times(figures.decode_gbps, yardstick.decode_gbps if yardstick else None), style="dim"),
        _error(figures),
    ]


def _block_share(case: CaseResult) -> list[Text]:
    """Compare many small blocks with one, where a case does that."""
    many, one = case.figures(OURS), case.figures(OURS + ONE_BLOCK)
    if many is None or one is None:
        return []
    encode, decode = many.encode_gbps / one.encode_gbps, many.decode_gbps / one.decode_gbps
    return [
        Text.assemble(
            f"{case.blocks:,} blocks in one call reach ",
            (f"{encode:.0%}", "bold"),
            " (encode) and ",
            (f"{decode:.0%}", "bold"),
            " (decode) of one block's speed",
        )
    ]


def _keeps_bound(figures: Figures) -> bool:
    return figures.max_error_over_bound <= 1


def _error(figures: Figures) -> Text:
    error = figures.max_error_over_bound
    if _keeps_bound(figures):
        return Text(f"{error:.3f}")
    shown = f"{error:,.3g}" if error >= 1.0005 else ">1.000"
    return Text(shown, style="red")


def _ratio(ratio: float) -> str:
    return f"{ratio:,.0f}x" if ratio >= 1000 else f"{ratio:.3g}x" if ratio >= 100 else f"{ratio:.2f}x"


def _speed(gbps: float) -> str:
    return f"{gbps:.3f}" if gbps < 1 else f"{gbps:.2f}"


def _times(gbps: float, yardstick: float | None) -> str:
    return f"{gbps / yardstick:.2f}x" if yardstick else "-"
