"""``python -m benchmarks placement``: all its parts, one after the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.placement.case import find_cases
from benchmarks.placement.row import Row
from benchmarks.placement.simulated import simulate_bytes
from benchmarks.placement.timing import time_placements
from benchmarks.placement.traffic import measure_traffic

__all__ = ["as_json", "run_placement_benchmark"]

_STEPS = 2  # of a turn: what disturbs a shared machine lasts longer than that, and many short turns dodge it better than few long ones


def run_placement_benchmark(
    *,
    data: Path | None,
    rates_mbit: Sequence[float] = (100.0, 200.0, 1000.0),
    hosts: int = 2,
    ranks: Sequence[int] = (2, 4, 8),
    full: bool,
    say: Callable[[str], None],
) -> list[Row]:
    """Measure bytes on several numbers of ranks, and time on hosts of a core each; ``full``: three times as long."""
    with TemporaryDirectory(prefix="laconic-plans-") as folder:
        place = Path(folder)
        place.chmod(0o755)
        cases = find_cases(data, place, every=True)
        rows = measure_traffic(cases, ranks, steps=12 if full else 6, say=say)
        rows += simulate_bytes(cases, rows)
        return rows + time_placements(
            find_cases(data, place, every=False),
            rates_mbit,
            hosts=hosts,
            match_profile=True,
            rounds=9 if full else 3,
            steps=_STEPS,
            folder=place,
            say=say,
        )


def as_json(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Rows for machines."""
    return [asdict(row) for row in rows]
