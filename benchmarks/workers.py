"""A pool of ranks that do the jobs of a benchmark, in the lab or on loopback, and one such rank.

Rank 0 reads jobs from a pipe and broadcasts them; answers are JSON lines in a file. Both are named
on the command line of the ranks.

Bytes sent are those of the counter of a host's network interface. ``/proc/net/dev`` shows the
process's own network namespace; ``/sys/class/net`` would show that of whoever mounted it. On
loopback all ranks, and everybody else who uses it, share one counter.
"""

from __future__ import annotations

import json
import os
import socket
import statistics
import subprocess
import sys
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from types import TracebackType
from typing import IO, Any, Self, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from laconic.config import Settings
from laconic.errors import CommError, ConfigError
from laconic.lab import Lab
from laconic.train.ranks import Ranks

Answer = TypeVar("Answer", bound=Settings)


class WorkerPool:
    """Some ranks, ready for jobs; a context manager."""

    def __init__(self, module: str, ranks: int, *, rate_mbit: float | None = None) -> None:
        """Let every rank run ``module``, which calls ``worker.serve``.

        ``rate_mbit``: rate of the links of a lab whose hosts they are; None: processes on loopback.
        """
        self.ranks, self._module, self._rate_mbit = ranks, module, rate_mbit
        self._stack = ExitStack()
        self._lab: Lab | None = None
        self._job: Any = None
        self._processes: list[subprocess.Popen[bytes]] = []
        self._pipe: IO[str] | None = None
        self._read = 0

    def __enter__(self) -> Self:
        folder = Path(self._stack.enter_context(TemporaryDirectory(prefix="laconic-bench-")))
        folder.chmod(0o755)
        self._jobs, self._answers, self._log = folder / "jobs", folder / "answers", folder / "log"
        os.mkfifo(self._jobs)
        self._answers.touch()
        command = [sys.executable, "-m", self._module, str(self._jobs), str(self._answers)]
        if self._rate_mbit is not None:
            self._lab = self._stack.enter_context(Lab(hosts=self.ranks, mbps=self._rate_mbit))
            self._job = self._lab.start(command, pin_cores=True, stream=False)
        else:
            self._start_processes(command)
        self._pipe = self._open_pipe()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._pipe is not None:
            self._pipe.close()
        for process in self._processes:
            if kind is not None:
                process.kill()
            process.wait()
        if self._job is not None:
            self._job.stop() if kind is not None else self._job.wait(timeout_s=60)
        self._stack.close()

    def set_rate(self, mbit: float) -> None:
        """Change the rate of the lab's links, in Mbit/s."""
        assert self._lab is not None, "only the lab has links"
        self._lab.set_mbps(mbit)

    def match_rate(
        self, share: float, probe: Callable[[], tuple[float, float]], *, first: float, tolerance: float
    ) -> float:
        """Set links to the Mbit/s at which steps communicate for this share of their time.

        ``probe`` returns milliseconds of a step alone and of one that communicates, at the rate of
        the moment. What the latter takes longer goes about with 1 / rate. ``first`` is the rate
        that links have now.
        """
        rate = first
        for _ in range(5):
            alone, communicating = probe()
            if abs(1 - alone / communicating - share) <= tolerance:
                break
            wanted = alone / (1 - share)
            rate = round(min(max(rate * max(communicating - alone, 1.0) / (wanted - alone), 10), 10_000))
            self.set_rate(rate)
        return rate

    def ask(self, job: Settings, answer: type[Answer]) -> list[Answer]:
        """Let all ranks do one job, and return what they answered."""
        assert self._pipe is not None, "used outside its context"
        self._pipe.write(f"{type(job).__name__} {job.model_dump_json()}\n")
        self._pipe.flush()
        while True:
            text = self._answers.read_text()
            line, end, _ = text[self._read :].partition("\n")
            if end:
                self._read += len(line) + 1
                return [answer.model_validate(found) for found in json.loads(line)]
            self._check_alive()
            time.sleep(0.05)

    def _start_processes(self, command: list[str]) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        common = {
            "WORLD_SIZE": self.ranks,
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": port,
            "GLOO_SOCKET_IFNAME": "lo",
            "OMP_NUM_THREADS": 1,
        }
        log = self._stack.enter_context(self._log.open("wb"))
        for rank in range(self.ranks):
            given = {name: str(value) for name, value in {**common, "RANK": rank}.items()}
            self._processes.append(
                subprocess.Popen(command, env={**os.environ, **given}, stdout=log, stderr=subprocess.STDOUT)
            )

    def _open_pipe(self) -> IO[str]:
        """Open for writing once rank 0 reads; opening at once would hang if it has failed."""
        while True:
            try:
                return os.fdopen(os.open(self._jobs, os.O_WRONLY | os.O_NONBLOCK), "w")
            except OSError:
                self._check_alive()
                time.sleep(0.05)

    def _check_alive(self) -> None:
        if self._job is not None:
            ended = not self._job.running
            text = "\n".join(self._job.output(host) for host in range(self.ranks))
        else:
            ended = any(process.poll() is not None for process in self._processes)
            text = self._log.read_text(errors="replace")
        if ended:
            raise CommError(f"bench: a rank ended before its work was done:\n{text.strip()[-2000:]}")


_SENT = 8  # column of bytes sent, after eight of what was received


def serve(ranks: Ranks, jobs: Mapping[type[Settings], Callable[[Any], Sequence[Settings]]]) -> None:
    """Work until told to stop; ``jobs`` says for each kind of job who does it."""
    torch.set_num_threads(1)
    known = {kind.__name__: (kind, do) for kind, do in jobs.items()}
    pipe, answers = Path(sys.argv[1]), Path(sys.argv[2])
    for name, text in _received(ranks, pipe):
        kind, do = known[name]
        found = do(kind.model_validate_json(text))
        if ranks.leads:
            with answers.open("a") as file:
                file.write(json.dumps([answer.model_dump(mode="json") for answer in found]) + "\n")


def _received(ranks: Ranks, pipe: Path) -> Iterator[tuple[str, str]]:
    file: IO[str] | None = pipe.open() if ranks.leads else None
    while True:
        line = [file.readline() if file is not None else ""]
        if ranks.count > 1:
            dist.broadcast_object_list(line, src=0)
        if not line[0]:
            return
        name, text = line[0].split(" ", 1)
        yield name, text


@dataclass(frozen=True, slots=True)
class MeasuredCalls:
    """Times and bytes of calls that all ranks made together."""

    times_ms: tuple[float, ...]
    """Milliseconds of every call, on the rank that took longest."""
    bytes_sent: float
    """Bytes per call and host; two barriers of some hundred bytes are in it."""


def measure(ranks: Ranks, call: Callable[[], object], calls: int = 1, *, skip: int = 0) -> MeasuredCalls:
    """Call a function some times on all ranks at once; the first ``skip`` times do not count.

    After the barrier at the end all that was sent has arrived, so that the counter has seen it.
    """
    for _ in range(skip):
        call()
    ranks.barrier()
    before = bytes_sent()
    ranks.barrier()
    times = []
    for _ in range(calls):
        start = perf_counter()
        call()
        times.append(1e3 * (perf_counter() - start))
    ranks.barrier()
    everyone = ranks.gather((times, bytes_sent() - before))
    shared = ranks.count if _interface() == "lo" else 1
    sent = [seen / calls / shared for _, seen in everyone]
    slowest = tuple(max(each) for each in zip(*(times for times, _ in everyone), strict=True))
    return MeasuredCalls(slowest, statistics.fmean(sent))


def bytes_sent() -> int:
    """Read the counter of the interface that gloo uses."""
    name = _interface()
    for line in Path("/proc/self/net/dev").read_text().splitlines():
        found, colon, figures = line.partition(":")
        if colon and found.strip() == name:
            return int(figures.split()[_SENT])
    raise ConfigError(f"GLOO_SOCKET_IFNAME: no such network interface {name!r}")


def _interface() -> str:
    return os.environ.get("GLOO_SOCKET_IFNAME", "lo")


def fingerprint(x: Tensor) -> int:
    """Return a number that differs where bits do."""
    return zlib.crc32(x.detach().contiguous().view(torch.uint8).numpy().data)


class MethodFigures(Settings):
    """Times and bytes of one method on all ranks; benchmarks add their own figures."""

    method: str
    round_ms: tuple[tuple[float, ...], ...]
    """Milliseconds of each sum or step of each round, on the rank that took longest."""
    bytes_sent: float
    """Bytes that one host sends for a sum or step: mean over hosts, median over rounds."""

    @classmethod
    def of(cls, method: str, measured: Sequence[MeasuredCalls], **figures: Any) -> Self:
        """Take what was measured in each round."""
        times = tuple(turn.times_ms for turn in measured)
        sent = statistics.median(turn.bytes_sent for turn in measured)
        return cls(method=method, round_ms=times, bytes_sent=sent, **figures)

    @property
    def ms(self) -> float:
        """Milliseconds of the median sum or step."""
        return statistics.median(time for turn in self.round_ms for time in turn)
