"""What the placement benchmark comes to: how good predictions are, whether they rank placements as they are, and what plans gain."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

from benchmarks.placement.row import Row
from benchmarks.results import ratios_of_turns

__all__ = ["Race", "Summary", "races_of", "summarize"]

_DIFFERS = 1.1
_STALE = "planned_every"
_NOT_PLACED = ("alone", "plain")


@dataclass(frozen=True, slots=True)
class Race:
    """The plan against the others, in one setting."""

    data: str
    rate_mbit: float
    codec: str
    communicates: float
    """Share of plain training's step."""
    faster_than_plain: float
    other: str
    """The fastest of the others."""
    over_other: float
    """Step of the plan over that of the other."""
    interval: tuple[float, float, float] | None
    """Mean of the same ratio in turns that both had, and its 95 % interval."""


@dataclass(frozen=True, slots=True)
class Summary:
    """All settings together."""

    bytes_error: float
    """The largest, of bytes by direction."""
    median_error: float
    worst_error: float
    predictions: int
    """Of steps."""
    pairs: int
    """Of placements with the same codec in one setting whose steps differ by more than a tenth, in 95 of 100 such runs."""
    ranked_right: int


def summarize(rows: Sequence[Row]) -> Summary:
    """Compare what was predicted with what was measured."""
    sent = [
        _error(r.predicted_bytes, r.measured_bytes) for r in rows if r.kind == "bytes" and r.measured_bytes
    ]
    placed = [row for row in rows if row.kind == "time" and row.predicted_ms is not None]
    errors = [_error(row.predicted_ms, row.measured_ms) for row in placed]
    right = [
        _as_predicted(one, other, way)
        for group in _groups(placed).values()
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


def races_of(rows: Sequence[Row]) -> list[Race]:
    """Find who was fastest beside the plan, wherever both were timed."""
    timed = [row for row in rows if row.kind == "time"]
    here = {(row.data, row.rate_mbit, row.placement): row.measured_ms or 0.0 for row in timed}
    races = []
    for (data, rate, codec), group in _groups([r for r in timed if r.placement not in _NOT_PLACED]).items():
        planned = next(row for row in group if row.placement == "planned")
        others = [r for r in group if r is not planned and not r.placement.startswith(_STALE)]
        if not others:
            continue
        best = min(others, key=lambda row: row.measured_ms or 0.0)
        plain, alone = here[data, rate, "plain"], here[data, rate, "alone"]
        races.append(
            Race(
                data=data,
                rate_mbit=rate,
                codec=codec,
                communicates=1 - alone / plain,
                faster_than_plain=plain / (planned.measured_ms or 1.0),
                other=best.placement,
                over_other=(planned.measured_ms or 0.0) / (best.measured_ms or 1.0),
                interval=best.planned_over,
            )
        )
    return races


def _groups(rows: Sequence[Row]) -> dict[tuple[str, float, str], list[Row]]:
    groups: dict[tuple[str, float, str], list[Row]] = defaultdict(list)
    for row in rows:
        groups[row.data, row.rate_mbit or 0.0, row.codec].append(row)
    return groups


def _differ(one: Row, other: Row) -> int:
    """Return 1 if the first surely takes a tenth longer, -1 if the second does, 0 if neither is sure."""
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
