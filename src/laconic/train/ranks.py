"""The process group of a run: as torchrun, the lab or any launcher of its kind describes it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch.distributed as dist

from laconic.errors import CommError, ConfigError

__all__ = ["Ranks", "process_group"]


@dataclass(frozen=True, slots=True)
class Ranks:
    """Who this process is among how many."""

    rank: int
    count: int

    @property
    def leads(self) -> bool:
        """Whether this is the rank that prints and writes what exists once."""
        return self.rank == 0

    def gather(self, value: Any) -> list[Any]:
        """Every rank's value, on every rank; small ones only."""
        if self.count == 1:
            return [value]
        values: list[Any] = [None] * self.count
        dist.all_gather_object(values, value)
        return values

    def barrier(self) -> None:
        """Wait for all ranks."""
        if self.count > 1:
            dist.barrier()


@contextmanager
def process_group(timeout_s: float) -> Iterator[Ranks]:
    """Join the group that the environment describes, if any; leave it at the end."""
    ranks = int(os.environ.get("WORLD_SIZE", "1"))
    if ranks == 1:
        yield Ranks(0, 1)
        return
    missing = [name for name in ("RANK", "MASTER_ADDR", "MASTER_PORT") if name not in os.environ]
    if missing:
        raise ConfigError(
            f"ranks: WORLD_SIZE is {ranks} but {', '.join(missing)} is not set; start with torchrun or laconic lab"
        )
    try:
        dist.init_process_group("gloo", timeout=timedelta(seconds=timeout_s))
    except (RuntimeError, ValueError) as error:
        raise CommError(
            f"ranks: rank {os.environ['RANK']} of {ranks} found no group at {os.environ['MASTER_ADDR']}:"
            f"{os.environ['MASTER_PORT']} ({str(error).splitlines()[0]})"
        ) from error
    yield Ranks(dist.get_rank(), ranks)
    dist.destroy_process_group()  # not after an error: it would wait for peers that are gone
