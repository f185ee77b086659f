"""One rank of a ``WorkerPool``: it does the jobs that come, and measures calls that all ranks make at once.

Rank 0 reads jobs from a pipe and tells the others; answers are JSON lines in a file. Both are named on the
command line.

Bytes are those of the counter of this host's network interface. ``/proc/net/dev`` is that of the process's
network namespace; ``/sys/class/net`` would be that of whoever mounted it. On loopback all ranks, and whoever else
uses it, share one counter.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import IO, Any, Self

import torch
import torch.distributed as dist
from torch import Tensor

from laconic.config import Settings
from laconic.errors import ConfigError
from laconic.train.ranks import Ranks

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
    """What all ranks found together."""

    times_ms: tuple[float, ...]
    """Milliseconds of every call, on the rank that took longest."""
    bytes_sent: float
    """Bytes per call and host; two barriers of some hundred bytes are in it."""


def measure(ranks: Ranks, call: Callable[[], object], calls: int = 1, *, skip: int = 0) -> MeasuredCalls:
    """Call a function some times on all ranks at once; the first ``skip`` times are not in the figures.

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
    """What all ranks found of one method; benchmarks add figures of their own."""

    method: str
    round_ms: tuple[tuple[float, ...], ...]
    """Milliseconds of each sum or step of each round, on the rank that took longest."""
    bytes_sent: float
    """Bytes by one host for one sum or step: the mean of all hosts' counters, the median of all rounds."""

    @classmethod
    def of(cls, method: str, measured: Sequence[MeasuredCalls], **figures: Any) -> Self:
        """Take what was measured in each round."""
        times = tuple(turn.times_ms for turn in measured)
        sent = statistics.median(turn.bytes_sent for turn in measured)
        return cls(method=method, round_ms=times, bytes_sent=sent, **figures)

    @property
    def ms(self) -> float:
        """Median over all sums or steps."""
        return statistics.median(time for turn in self.round_ms for time in turn)
