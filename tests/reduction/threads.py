"""Many ranks in one process: a thread each, whose wires hand arrays over in memory."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from laconic.exchange.wire import Wire


class _Table:
    """What all ranks put down and take up, round by round."""

    def __init__(self, ranks: int) -> None:
        self.barrier = threading.Barrier(ranks)
        self.outs: list[Any] = [None] * ranks


class ThreadWorld:
    """One rank's view; every wire is opened in the same order by every rank."""

    def __init__(self, rank: int, ranks: int, tables: dict[str, _Table]) -> None:
        self.rank, self.ranks, self._tables = rank, ranks, tables

    def wire(self, name: str) -> Wire:
        table = self._tables[name]

        def swap(heard, out, coming_N, sent_N, where) -> None:
            table.outs[self.rank] = np.split(out, np.cumsum(sent_N)[:-1])
            table.barrier.wait(60)
            for source, into in enumerate(np.split(heard, np.cumsum(coming_N)[:-1])):
                if source != self.rank:
                    into[:] = table.outs[source][self.rank]
            table.barrier.wait(60)

        return Wire(name, self.rank, self.ranks, swap)


def in_threads(
    ranks: int, function: Callable[[ThreadWorld], Any], wires: tuple[str, ...] = ("all-reduce",)
) -> list[Any]:
    """Return what the function returned on every rank."""
    tables = {name: _Table(ranks) for name in wires}

    def run(rank: int) -> Any:
        try:
            return function(ThreadWorld(rank, ranks, tables))
        except BaseException:
            for table in tables.values():
                table.barrier.abort()
            raise

    with ThreadPoolExecutor(ranks) as pool:
        futures = [pool.submit(run, rank) for rank in range(ranks)]
        errors = [future.exception() for future in futures]
        for error in sorted(
            (e for e in errors if e), key=lambda e: isinstance(e, threading.BrokenBarrierError)
        ):
            raise error
        return [future.result() for future in futures]
