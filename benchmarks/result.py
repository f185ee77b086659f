"""What the codec benchmark found, as values."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass

from benchmarks.case import Case
from benchmarks.results import Machine


@dataclass(frozen=True, slots=True)
class Figures:
    """How one codec did on one case; speeds are of float32 input, on one thread."""

    ratio: float
    encode_gbps: float
    decode_gbps: float
    max_error_over_bound: float


@dataclass(frozen=True, slots=True)
class Entry:
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
    entries: tuple[Entry, ...]

    @classmethod
    def of(cls, case: Case, ideal_ratio: float, entries: tuple[Entry, ...]) -> CaseResult:
        """Forget the values, which may be large."""
        return cls(
            case.name,
            case.rows,
            case.dim,
            case.blocks,
            case.asked,
            case.unit,
            case.bound,
            ideal_ratio,
            entries,
        )

    def figures(self, codec: str) -> Figures | None:
        """Figures of a codec by name; None if it was absent or took no part."""
        return next((entry.figures for entry in self.entries if entry.codec == codec), None)


@dataclass(frozen=True, slots=True)
class Result:
    """All tables of one run."""

    machine: Machine
    cases: tuple[CaseResult, ...]

    @property
    def rows(self) -> list[dict[str, str | float | None]]:
        """One record per case and codec; null for what an absent peer, or an infinity, has to say."""
        return [_record(case, entry) for case in self.cases for entry in case.entries]


def _record(case: CaseResult, entry: Entry) -> dict[str, str | float | None]:
    figures = asdict(entry.figures) if entry.figures else {}
    numbers = {name: figures.get(name) for name in Figures.__slots__} | {"ideal_ratio": case.ideal_ratio}
    finite = {k: v if v is not None and math.isfinite(v) else None for k, v in numbers.items()}
    return {"dump": case.name, "codec": entry.codec, "bound": case.asked, **finite}
