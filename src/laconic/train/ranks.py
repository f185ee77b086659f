"""The process group of a run: as torchrun, the lab or any launcher of its kind describes it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

import torch.distributed as dist
from torch.distributed.distributed_c10d import PrefixStore
from torch.distributed.rendezvous import rendezvous

from laconic.errors import CommError, ConfigError, LaconicError
from laconic.exchange.ranks.gathering import Gathering
from laconic.exchange.ranks.transport import is_lost_peer, lost_peer
from laconic.exchange.ranks.world import GroupWorld

__all__ = ["Ranks", "process_group"]

Result = TypeVar("Result")

_PATIENCE_S = 600.0  # writing a checkpoint; a process that is gone is noticed at once all the same


@dataclass(frozen=True, slots=True)
class Ranks:
    """Who this process is among how many."""

    rank: int
    count: int
    gathering: Gathering | None = None
    """How ranks tell each other values; None where there is one rank."""
    rehearsed: int | None = None
    """Number of ranks that this process trains as, on whole batches; None: as one."""
    all_remote: bool = False
    """Whether ranks in rehearsal also encode what they ask of themselves, as on a large cluster."""

    @classmethod
    def joined(cls, patience_s: float = _PATIENCE_S) -> Ranks:
        """Return those of torch's default process group, of which each calls this."""
        return cls(dist.get_rank(), dist.get_world_size(), Gathering(GroupWorld(), patience_s))

    @property
    def leads(self) -> bool:
        """Whether this is the rank that prints and writes what exists once."""
        return self.rank == 0

    def gather(self, value: Any, *, patient: bool = True) -> list[Any]:
        """Every rank's value, on every rank; small ones only.

        Not ``patient``: ranks come here at about the same time, so that one that does not is gone.
        """
        return [value] if self.gathering is None else self.gathering.gather(value, patient=patient)

    def merge(self, value: Result, merged: Callable[[Result, Result], Result]) -> Result | None:
        """Make one of the values of all ranks, on the rank that leads; None on the others.

        Values may be large: pairs of ranks make one of two, and so on, until one is left.
        """
        distance = 1
        while self.gathering is not None and distance < self.count:
            gives = self.rank % (2 * distance) == distance
            for other in self.gathering.hand(value, self.rank - distance if gives else None):
                value = merged(value, other)
            distance *= 2
        return value if self.leads else None

    def barrier(self) -> None:
        """Wait for all ranks."""
        self.gather(None)

    def together(self, action: Callable[[], Result]) -> Result:
        """Do what may fail on some ranks only, and wait for all; if one fails, all raise."""
        done: list[Result] = []
        failure: Exception | None = None
        try:
            done.append(action())
        except (LaconicError, OSError) as error:
            failure = error
        for failed in (failure, *self.gather(failure)):
            if failed is not None:
                raise failed
        return done[0]


@contextmanager
def process_group(timeout_s: float) -> Iterator[Ranks]:
    """Join the group that the environment describes, if any; leave it at the end.

    A collective that fails inside raises ``CommError``, whoever called it.
    """
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
        _join(timedelta(seconds=timeout_s))
    except (RuntimeError, ValueError) as error:
        raise CommError(
            f"ranks: rank {os.environ['RANK']} of {ranks} found no group at {os.environ['MASTER_ADDR']}:"
            f"{os.environ['MASTER_PORT']} ({str(error).splitlines()[0]})"
        ) from error
    try:
        yield Ranks.joined(max(_PATIENCE_S, timeout_s))
    except RuntimeError as error:
        if isinstance(error, LaconicError) or not is_lost_peer(error):
            raise
        raise lost_peer("train", dist.get_rank(), error) from error
    dist.destroy_process_group()  # not after an error: it would wait for peers that are gone


def _join(timeout: timedelta) -> None:
    """Join the group.

    Torchrun restarts ranks with the same store, which has addresses of ranks that are gone.
    """
    store, rank, ranks = next(rendezvous("env://", timeout=timeout))
    store.set_timeout(timeout)
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    fresh = PrefixStore(f"attempt-{attempt}", store)
    dist.init_process_group("gloo", store=fresh, rank=rank, world_size=ranks, timeout=timeout)
