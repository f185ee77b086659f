"""Ranks that do the jobs of a benchmark: hosts of the lab, or processes on the loopback interface."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import IO, Any, Self, TypeVar

from laconic.config import Settings
from laconic.errors import CommError
from laconic.lab import Lab

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
            self._lab = self._stack.enter_context(Lab(hosts=self.ranks, rate=_rate(self._rate_mbit)))
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
        self._lab.set_rate(_rate(mbit))

    def match_rate(
        self, share: float, probe: Callable[[], tuple[float, float]], *, first: float, tolerance: float
    ) -> float:
        """Find the rate, in Mbit/s, at which steps communicate for this share of their time; links keep it.

        ``probe`` returns milliseconds of a step alone and of one that communicates, at the rate of the moment. What the
        latter takes longer goes about with 1 / rate. ``first`` is the rate that links have now.
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
        """Open for writing once rank 0 reads: opening at once would wait for ever for one that failed."""
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


def _rate(mbit: float) -> str:
    return f"{1000 * mbit:.0f}kbit"
