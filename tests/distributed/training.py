"""``laconic train`` on several ranks of this machine, each a process with files for what it writes."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import Any

from tests.distributed.ranks import free_port, server

PATIENCE_S = 120  # for a machine that is busy; nothing waits longer than train.timeout_s by itself

SETTINGS = """
[data]
kind = "synthetic"
rows = [200, 50, 7, 1000]
bags = [1, 3, 1, 1]
samples = {samples}
eval_samples = 50
dense = 4

[model]
dim = 4
bottom = [8]
top = [8]

[embeddings]
replicate_below = 10

[train]
batch = 16
eval_every = 7
eval_batch = 16
log_every = 1
checkpoint_every = 5
out = "{out}"
"""


def write_settings(folder: Path, *, samples: int, name: str = "run") -> Path:
    """Settings of a small run that needs all of the exchange; its results go to ``folder / name``."""
    path = folder / f"{name}.toml"
    path.write_text(SETTINGS.format(samples=samples, out=folder / name))
    return path


@dataclass(frozen=True)
class Rank:
    """One process of a run."""

    process: BaseProcess
    out: Path
    err: Path

    def wait(self) -> int:
        """Exit code; a rank that does not end is a failure."""
        self.process.join(PATIENCE_S)
        assert self.process.exitcode is not None, f"{self.process.name} still runs: {self.err.read_text()}"
        return self.process.exitcode

    @property
    def errors(self) -> list[str]:
        """Lines of standard error."""
        return self.err.read_text().splitlines()


def start(
    ranks: int,
    folder: Path,
    arguments: Sequence[str],
    *,
    only: dict[int, Sequence[str]] | None = None,
    sabotage: Callable[[int], Any] | None = None,
    environment: dict[str, str] | None = None,
) -> list[Rank]:
    """Start the ranks; ``only`` has more arguments of one rank, ``sabotage(rank)`` is done by each before."""
    folder.mkdir(parents=True, exist_ok=True)
    shared = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "GLOO_SOCKET_IFNAME": "lo"}
    started: list[Rank] = []
    for rank in range(ranks):
        files = (folder / f"out-{rank}", folder / f"err-{rank}")
        words = (*arguments, *(only or {}).get(rank, ()))
        variables = {**shared, "RANK": str(rank), "WORLD_SIZE": str(ranks), **(environment or {})}
        process = server().Process(target=_main, args=(rank, variables, files, words, sabotage))
        process.start()
        started.append(Rank(process, *files))
    return started


def train(ranks: int, folder: Path, *arguments: str) -> None:
    """Train to the end."""
    for rank in start(ranks, folder, arguments):
        assert rank.wait() == 0, rank.err.read_text()
        assert rank.errors == []


def _main(
    rank: int,
    environment: dict[str, str],
    files: tuple[Path, Path],
    arguments: Sequence[str],
    sabotage: Callable[[int], Any] | None,
) -> None:
    import torch

    from laconic.cli import main

    for descriptor, path in enumerate(files, start=1):
        os.dup2(os.open(path, os.O_CREAT | os.O_TRUNC | os.O_WRONLY), descriptor)
    os.environ.update(environment)
    torch.set_num_threads(1)
    if sabotage is not None:
        sabotage(rank)
    sys.argv = ["laconic", "train", *arguments]
    main()


class Steps:
    """Steps of a run as it takes them: its metrics file is a pipe that a thread reads."""

    def __init__(self, out: Path) -> None:
        out.mkdir(parents=True, exist_ok=True)
        self._path = out / "metrics.jsonl"
        os.mkfifo(self._path)
        self._lines: SimpleQueue[str] = SimpleQueue()
        Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        with self._path.open() as pipe:
            for line in pipe:
                self._lines.put(line)

    def wait_for(self, step: int) -> None:
        """Return when the run has taken this step; it goes on."""
        while f'"kind": "train", "step": {step},' not in self._lines.get(timeout=PATIENCE_S):
            pass

    def remove(self) -> None:
        """Make room for a file."""
        self._path.unlink()
