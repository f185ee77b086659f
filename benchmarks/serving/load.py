"""``python -m benchmarks.serving.load [--artifact DIR] [--seconds 60] [--factor 4] [--json FILE]``.

Serves an artifact in a process of its own, measures how many requests a second it can answer, then
sends several times as many and looks at what becomes of them, and of the server's memory. Without
an artifact, a model with random weights is made. Clients cost little: requests are bytes made
before, answers are read and not understood.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.table import Table

from benchmarks.harness import Machine, print_wide, table_of
from laconic.errors import ConfigError
from laconic.quantize.formats import (
    DenseFeature,
    Features,
    ModelShape,
    Recipe,
    RowFormat,
    TableFeature,
    TablePrecision,
    TrainedModel,
    quantize_model,
    read_artifact,
    write_artifact,
)

_START_S = 120
_BODIES = 64
_LENGTH = re.compile(rb"\r\ncontent-length: (\d+)", re.IGNORECASE)


def main() -> None:
    """Run what the arguments say."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.serving.load")
    parser.add_argument("--artifact", type=Path, help="what to serve; one with random weights if left out")
    parser.add_argument("--samples", type=int, default=256, help="of a request")
    parser.add_argument("--connections", type=int, default=256)
    parser.add_argument("--seconds", type=float, default=60, help="of overload")
    parser.add_argument("--warm", type=float, default=10, help="seconds of measuring what the server can do")
    parser.add_argument(
        "--factor", type=float, default=4, help="load, in multiples of what the server can do"
    )
    parser.add_argument("--set", action="append", dest="settings", default=[], help="setting of the server")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        artifact = given.artifact or _random_artifact(Path(scratch) / "artifact")
        requests = _requests(artifact, given.samples)
        with _server(artifact, Path(scratch), given.settings) as (process, host, port):
            result = asyncio.run(_measure(process, host, port, requests, given))
    result = {"machine": str(Machine.this()), "samples": given.samples, **result}
    print_wide(_table(result))
    if given.json is not None:
        given.json.write_text(json.dumps(result, indent=2) + "\n")


async def _measure(
    process: subprocess.Popen[bytes], host: str, port: int, requests: list[bytes], given: argparse.Namespace
) -> dict[str, Any]:
    able = await closed_loop(host, port, requests, 16, given.warm)
    rate = able.statuses.get(200, 0) / able.seconds
    if not rate:
        raise ConfigError(f"load: expected answers with 200, got {able.statuses}; is the artifact right?")
    memory: list[int] = []

    async def look() -> None:
        while True:
            memory.append(_resident_bytes(process.pid))
            await asyncio.sleep(1)

    looking = asyncio.create_task(look())
    before_s = _cpu_s(process.pid)
    over = await open_loop(host, port, requests, given.connections, given.factor * rate, given.seconds)
    cores = (_cpu_s(process.pid) - before_s) / over.seconds
    looking.cancel()
    settled = memory[len(memory) // 4 :]
    return {
        "able_per_s": rate,
        "able": _figures(able),
        "over": _figures(over),
        "offered_per_s": given.factor * rate,
        "server_cores": cores,
        "memory_bytes": {
            "first": memory[0],
            "quarter": settled[0],
            "largest": max(memory),
            "last": memory[-1],
        },
        "still_up": process.poll() is None,
    }


def _figures(outcomes: LoadOutcomes) -> dict[str, Any]:
    latencies = np.array(outcomes.latencies_s or [np.nan]) * 1e3
    quantiles = dict(
        zip(("p50", "p90", "p99", "largest"), np.quantile(latencies, (0.5, 0.9, 0.99, 1)), strict=True)
    )
    return {
        "statuses": {str(status): count for status, count in sorted(outcomes.statuses.items())},
        "unsent": outcomes.unsent,
        "accepted_per_s": outcomes.statuses.get(200, 0) / outcomes.seconds,
        "latency_ms": {name: float(value) for name, value in quantiles.items()},
    }


def _table(result: dict[str, Any]) -> Table:
    table = table_of(
        f"requests of {result['samples']} samples, {result['machine']}",
        (("what it can do", result["able"]), ("overload", result["over"])),
        ("load", lambda row: row[0]),
        ("answered/s", lambda row: f"{row[1]['accepted_per_s']:.0f}"),
        ("answers by status", lambda row: ", ".join(f"{s}: {n:,}" for s, n in row[1]["statuses"].items())),
        ("unsent", lambda row: f"{row[1]['unsent']:,}"),
        ("p50 ms", lambda row: f"{row[1]['latency_ms']['p50']:.1f}"),
        ("p99 ms", lambda row: f"{row[1]['latency_ms']['p99']:.1f}"),
        ("largest ms", lambda row: f"{row[1]['latency_ms']['largest']:.1f}"),
    )
    memory = {key: value / 2**20 for key, value in result["memory_bytes"].items()}
    table.caption = (
        f"overload: {result['offered_per_s']:.0f}/s offered, the server uses {result['server_cores']:.2f} cores; its memory, MiB: "
        + ", ".join(f"{key} {value:.0f}" for key, value in memory.items())
    )
    return table


@contextmanager
def _server(
    artifact: Path, scratch: Path, settings: list[str]
) -> Iterator[tuple[subprocess.Popen[bytes], str, int]]:
    described = scratch / "ready.json"
    command = [
        sys.executable,
        "-c",
        "from laconic.cli import main; main()",
        "serve",
        str(artifact),
        "--port",
        "0",
    ]
    command += ["--json", str(described), *(part for setting in settings for part in ("--set", setting))]
    with subprocess.Popen(
        command, env={**os.environ, "OMP_NUM_THREADS": "1"}, stdout=subprocess.DEVNULL
    ) as process:
        try:
            deadline = time.monotonic() + _START_S
            while not (described.exists() and described.read_text().endswith("}\n")):
                if process.poll() is not None or time.monotonic() > deadline:
                    raise ConfigError(f"load: the server did not start within {_START_S} s; see above")
                time.sleep(0.05)
            host, _, port = json.loads(described.read_text())["url"].removeprefix("http://").rpartition(":")
            yield process, host, int(port)
        finally:
            process.terminate()


def _random_artifact(folder: Path) -> Path:
    torch.manual_seed(0)
    rows = {f"c{t}": 20_000 for t in range(26)}
    shape = ModelShape(dense=13, tables=len(rows), dim=16, bottom=(128, 64), top=(256, 128))
    features = Features(
        dense=tuple(DenseFeature(name=f"d{f}") for f in range(shape.dense)),
        tables=tuple(TableFeature(name=name, rows=count) for name, count in rows.items()),
    )
    tables = {name: torch.randn(count, shape.dim) * 0.1 for name, count in rows.items()}
    model = TrainedModel(shape, features, tables, shape.build().state_dict())
    recipe = Recipe.uniform(rows, shape.layer_names(), table=TablePrecision(format=RowFormat.INT8))
    write_artifact(folder, quantize_model(model, recipe), shadow=model)
    return folder


def _requests(artifact: Path, samples: int) -> list[bytes]:
    """Complete requests with binary tensors and uniform ids."""
    features = read_artifact(artifact).features
    rng = np.random.default_rng(0)
    requests = []
    for _ in range(_BODIES):
        tensors: dict[str, tuple[str, np.ndarray[Any, Any]]] = {}
        if features.dense:
            tensors["dense"] = "FP32", rng.standard_normal((samples, len(features.dense))).astype("<f4")
        for table in features.tables:
            tensors[table.name] = "INT64", rng.integers(0, table.rows, samples).astype("<i8")
        inputs = [
            {"name": name, "datatype": kind, "shape": x.shape, "parameters": {"binary_data_size": x.nbytes}}
            for name, (kind, x) in tensors.items()
        ]
        tree = json.dumps({"inputs": inputs, "parameters": {"binary_data_output": True}}).encode()
        body = tree + b"".join(x.tobytes() for _, x in tensors.values())
        head = (
            f"POST /v2/models/model/infer HTTP/1.1\r\nHost: laconic\r\nContent-Length: {len(body)}\r\n"
            f"Inference-Header-Content-Length: {len(tree)}\r\n\r\n"
        )
        requests.append(head.encode() + body)
    return requests


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")  # in user mode, in the kernel


def _resident_bytes(pid: int) -> int:
    fields = Path(f"/proc/{pid}/statm").read_text().split()
    return int(fields[1]) * os.sysconf("SC_PAGE_SIZE")


@dataclass(slots=True)
class LoadOutcomes:
    """Answers to requests, and their latencies."""

    seconds: float = 0.0
    statuses: dict[int, int] = field(default_factory=dict)
    """Answers by status; 0 is a connection that failed."""
    latencies_s: list[float] = field(default_factory=list)
    """Seconds until an answer with 200, from the moment when the request was due."""
    unsent: int = 0
    """Requests that were due while every connection waited for an answer."""

    def add(self, status: int, seconds: float) -> None:
        """Take one answer."""
        self.statuses[status] = self.statuses.get(status, 0) + 1
        if status == 200:
            self.latencies_s.append(seconds)


class Client:
    """One connection that sends one request at a time."""

    def __init__(self, host: str, port: int) -> None:
        self._address = (host, port)
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(self, request: bytes) -> int:
        """Send and wait; the status, 0 where the connection failed."""
        if self._streams is not None and self._streams[0].at_eof():
            self.close()  # by the server, which does not keep idle connections
        try:
            if self._streams is None:
                self._streams = await asyncio.open_connection(*self._address)
            reader, writer = self._streams
            writer.write(request)
            head = await reader.readuntil(b"\r\n\r\n")
            found = _LENGTH.search(head)
            await reader.readexactly(int(found[1]) if found else 0)
            if b"connection: close" in head.lower():
                self.close()
            return int(head[9:12])
        except (OSError, asyncio.IncompleteReadError):
            self.close()
            return 0

    def close(self) -> None:
        """Let go of the connection; the next request makes another."""
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None


async def closed_loop(
    host: str, port: int, requests: list[bytes], connections: int, seconds: float
) -> LoadOutcomes:
    """Send requests on some connections without a pause, to find the server's capacity."""
    outcomes = LoadOutcomes()
    begin = time.monotonic()

    async def ask_on(client: Client, number: int) -> None:
        while time.monotonic() - begin < seconds:
            sent = time.monotonic()
            outcomes.add(await client.ask(requests[number % len(requests)]), time.monotonic() - sent)
            number += connections
        client.close()

    await asyncio.gather(*(ask_on(Client(host, port), number) for number in range(connections)))
    outcomes.seconds = time.monotonic() - begin
    return outcomes


async def open_loop(
    host: str, port: int, requests: list[bytes], connections: int, rate: float, seconds: float
) -> LoadOutcomes:
    """Send ``rate`` requests a second, whatever the server does."""
    outcomes = LoadOutcomes()
    free = [Client(host, port) for _ in range(connections)]
    everyone = list(free)
    tasks: set[asyncio.Task[None]] = set()

    async def ask_once(client: Client, number: int, due: float) -> None:
        status = await client.ask(requests[number % len(requests)])
        outcomes.add(status, time.monotonic() - due)
        free.append(client)

    begin = time.monotonic()
    number = 0
    while (now := time.monotonic() - begin) < seconds:
        while number < now * rate:
            if free:
                task = asyncio.create_task(ask_once(free.pop(), number, begin + number / rate))
                tasks.add(task)
                task.add_done_callback(tasks.discard)
            else:
                outcomes.unsent += 1
            number += 1
        await asyncio.sleep(0.001)
    outcomes.seconds = time.monotonic() - begin
    await asyncio.gather(*tasks)
    for client in everyone:
        client.close()
    return outcomes


if __name__ == "__main__":
    main()
