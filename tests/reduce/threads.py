"""Many ranks in one process, a thread each."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from laconic.errors import CommError
from laconic.exchange.ranks.world import LocalWorld, World


def in_threads(ranks: int, function: Callable[[World], Any]) -> list[Any]:
    """Return what the function returned on every rank."""
    world = LocalWorld(ranks)

    def run(rank: int) -> Any:
        try:
            return function(world.of(rank))
        except BaseException:
            world.fail()
            raise

    with ThreadPoolExecutor(ranks) as pool:
        futures = [pool.submit(run, rank) for rank in range(ranks)]
        errors = [future.exception() for future in futures]
        for error in sorted((e for e in errors if e), key=lambda e: isinstance(e, CommError)):
            raise error
        return [future.result() for future in futures]
