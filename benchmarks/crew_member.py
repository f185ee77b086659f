"""One rank of a crew: does the jobs that ``Crew`` sends, one after the other.

Rank 0 reads jobs from a pipe and tells the others; answers are JSON lines in a file. Both are named on the
command line.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO

import torch.distributed as dist

from laconic.config import Settings
from laconic.train.ranks import Ranks

__all__ = ["do_jobs"]


def do_jobs(ranks: Ranks, do: Callable[[str, str], Sequence[Settings]]) -> None:
    """Work until told to stop; ``do`` gets the kind of a job and its JSON."""
    pipe, answers = Path(sys.argv[1]), Path(sys.argv[2])
    for kind, text in _jobs(ranks, pipe):
        found = do(kind, text)
        if ranks.leads:
            with answers.open("a") as file:
                file.write(json.dumps([answer.model_dump(mode="json") for answer in found]) + "\n")


def _jobs(ranks: Ranks, pipe: Path) -> Iterator[tuple[str, str]]:
    file: IO[str] | None = pipe.open() if ranks.leads else None
    while True:
        line = [file.readline() if file is not None else ""]
        if ranks.count > 1:
            dist.broadcast_object_list(line, src=0)
        if not line[0]:
            return
        kind, text = line[0].split(" ", 1)
        yield kind, text
