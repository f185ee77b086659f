"""In-network aggregation against a ring: the same integers, the same links, bytes by the interface's counter.

A ring all-reduce sends ``2 (n - 1) / n`` times the data from each host, a switch once: two thirds with four
hosts. Each method has a lab of its own, all open at the same time, and they take turns.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

from rich.console import Group, RenderableType

from benchmarks.results import figures_table
from laconic.lab import Lab, Rate

__all__ = ["METHODS", "Row", "render", "run_switch_benchmark"]

METHODS = {"ring (gloo)": None, "user space": "user", "XDP": "xdp"}
_TIMEOUT_S = 600


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """One method at one rate."""

    method: str
    rate_mbit: float
    hosts: int
    values: int
    seconds: float
    """Of the fastest sum; of each sum, the slowest host counts."""
    bytes_sent: float
    """By one host, per sum: mean over all hosts, sums and turns, fast and slow, setting up included."""
    ring_bytes_share: float
    ring_time_share: float

    def as_dict(self) -> dict[str, Any]:
        """Fields for a result file."""
        return dataclasses.asdict(self)


def run_switch_benchmark(
    *,
    rates_mbit: Sequence[float],
    hosts: int,
    values: int,
    rounds: int,
    turns: int,
    say: Callable[[str], Any],
) -> list[Row]:
    """Measure every method at every rate; the machine must be able to run XDP."""
    rows: list[Row] = []
    with ExitStack() as stack:
        labs = {
            method: stack.enter_context(Lab(hosts=hosts, aggregator=kind)) for method, kind in METHODS.items()
        }
        for rate_mbit in rates_mbit:
            found: dict[str, list[tuple[float, float]]] = {method: [] for method in labs}
            for turn in range(turns):
                for method, lab in labs.items():
                    say(f"{rate_mbit:g} Mbit/s, {method}, turn {turn + 1} of {turns}")
                    lab.set_rate(str(Rate(rate_mbit * 1e6)))
                    found[method].append(_run(lab, values, rounds))
            best = {
                method: (min(seconds for seconds, _ in runs), sum(sent for _, sent in runs) / turns)
                for method, runs in found.items()
            }
            ring_seconds, ring_bytes = best["ring (gloo)"]
            for method, (seconds, sent) in best.items():
                rows.append(
                    Row(
                        method=method,
                        rate_mbit=rate_mbit,
                        hosts=hosts,
                        values=values,
                        seconds=seconds,
                        bytes_sent=sent,
                        ring_bytes_share=sent / ring_bytes,
                        ring_time_share=seconds / ring_seconds,
                    )
                )
    return rows


def _run(lab: Lab, values: int, rounds: int) -> tuple[float, float]:
    """Return seconds of the fastest sum and bytes sent per sum and host."""
    env = {"VALUES": str(values), "ROUNDS": str(rounds)}
    command = [sys.executable, "-m", "benchmarks.reduction.switch_worker"]
    result = lab.run(command, env=env, pin_cores=True, timeout_s=_TIMEOUT_S, grace_s=30).check()
    by_host = [json.loads(text.splitlines()[-1]) for text in result.output]
    slowest = [max(times) for times in zip(*by_host, strict=True)]
    sent = sum(host.bytes_sent for host in result.hosts) / lab.hosts / rounds
    return min(slowest), sent


def render(rows: Sequence[Row]) -> RenderableType:
    """Make one table per rate."""
    tables: list[RenderableType] = []
    for rate in dict.fromkeys(row.rate_mbit for row in rows):
        here = [row for row in rows if row.rate_mbit == rate]
        first = here[0]
        title = f"sum of {first.values:,} integers: {first.hosts} hosts, {rate:g} Mbit/s"
        table = figures_table(title, "method", "time", "of ring", "sent per host", "of ring ")
        for row in here:
            table.add_row(
                row.method,
                f"{row.seconds * 1e3:.0f} ms",
                f"{row.ring_time_share:.1%}",
                f"{row.bytes_sent / 1e6:.2f} MB",
                f"{row.ring_bytes_share:.1%}",
            )
        tables.append(table)
    return Group(*tables)
