"""``python -m benchmarks switch``: in-network aggregation against a ring, on the same links.

A ring all-reduce sends ``2 (n - 1) / n`` times the data from each host. A switch needs it once: two
thirds with four hosts. Bytes are those of the interface's counter. Each method has its own lab. All
labs are open at the same time, and they take turns. A host of one runs
``python -m benchmarks.switch``.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from rich.console import Group, RenderableType

from benchmarks.harness import grouped, link_text, table_of
from laconic.lab import Lab
from laconic.reduce.network.client import ADDRESS_VARIABLE, InNetwork

METHODS = {"ring (gloo)": None, "user space": "user", "XDP": "xdp"}
_TIMEOUT_S = 600


@dataclass(frozen=True, kw_only=True, slots=True)
class SwitchRow:
    """Figures of one method at one bandwidth."""

    method: str
    rate_mbit: float
    hosts: int
    values: int
    seconds: float
    """Seconds of the fastest sum, on its slowest host."""
    bytes_sent: float
    """Bytes sent by one host per sum, setting up included: mean over hosts, sums and runs."""
    ring_bytes_share: float
    ring_time_share: float


def run_switch_benchmark(
    *,
    rates_mbit: Sequence[float],
    hosts: int,
    values: int,
    rounds: int,
    turns: int,
    say: Callable[[str], Any],
) -> list[SwitchRow]:
    """Measure every method at every rate; the machine must be able to run XDP."""
    rows: list[SwitchRow] = []
    with ExitStack() as stack:
        labs = {
            method: stack.enter_context(Lab(hosts=hosts, aggregator=kind)) for method, kind in METHODS.items()
        }
        for rate_mbit in rates_mbit:
            found: dict[str, list[tuple[float, float]]] = {method: [] for method in labs}
            for turn in range(turns):
                for method, lab in labs.items():
                    say(f"{rate_mbit:g} Mbit/s, {method}, turn {turn + 1} of {turns}")
                    lab.set_mbps(rate_mbit)
                    found[method].append(_run(lab, values, rounds))
            best = {
                method: (min(seconds for seconds, _ in runs), sum(sent for _, sent in runs) / turns)
                for method, runs in found.items()
            }
            ring_seconds, ring_bytes = best["ring (gloo)"]
            for method, (seconds, sent) in best.items():
                rows.append(
                    SwitchRow(
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
    command = [sys.executable, "-m", "benchmarks.switch"]
    result = lab.run(command, env=env, pin_cores=True, timeout_s=_TIMEOUT_S, grace_s=30).check()
    by_host = [json.loads(text.splitlines()[-1]) for text in result.output]
    slowest = [max(times) for times in zip(*by_host, strict=True)]
    sent = sum(host.bytes_sent for host in result.hosts) / lab.hosts / rounds
    return min(slowest), sent


def render(rows: Sequence[SwitchRow]) -> RenderableType:
    """Make one table per rate."""
    return Group(
        *(
            table_of(
                f"sum of {here[0].values:,} integers: {here[0].hosts} hosts, {link_text(rate)}",
                here,
                ("method", lambda row: row.method),
                ("time", lambda row: f"{row.seconds * 1e3:.0f} ms"),
                ("of ring", lambda row: f"{row.ring_time_share:.1%}"),
                ("sent per host", lambda row: f"{row.bytes_sent / 1e6:.2f} MB"),
                ("of ring", lambda row: f"{row.ring_bytes_share:.1%}"),
            )
            for rate, here in grouped(rows, lambda row: row.rate_mbit).items()
        )
    )


def sum_on_host() -> None:
    """Sum known integers by the aggregator or by gloo, check the sums, and print their times."""
    values, rounds = int(os.environ["VALUES"]), int(os.environ["ROUNDS"])
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    network = InNetwork.from_environment(timeout_s=60) if ADDRESS_VARIABLE in os.environ else None
    if network is None:
        dist.init_process_group("gloo")
    pattern = np.arange(values, dtype=np.int32) % 1000
    x = np.empty(values, dtype=np.int32)
    together = np.zeros(1, dtype=np.int32)
    times = []
    for round_number in range(rounds):
        np.multiply(pattern, rank + 1 + round_number, out=x)
        if network is None:
            dist.barrier()
            began = time.monotonic()
            dist.all_reduce(torch.from_numpy(x))
        else:
            network.add(together)
            began = time.monotonic()
            network.add(x)
        times.append(time.monotonic() - began)
        factor = sum(other + 1 + round_number for other in range(world))
        assert np.array_equal(x, pattern * factor), "the sum is wrong"
    if network is None:
        dist.destroy_process_group()
    print(json.dumps(times))


if __name__ == "__main__":
    sum_on_host()
