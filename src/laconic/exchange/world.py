"""Who the ranks are and what carries their messages: a process group, or nothing where one rank is alone.

The all-to-all is made of sends and receives: gloo's own uses a link in one direction at a time (3.4 MB each
way between two hosts at 200 Mbit/s: 298 ms, against 148 ms for these and 136 ms for the bare link). Every
wire has a process group of its own, so that directions may overlap.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray

from laconic.exchange.ahead import Ahead
from laconic.exchange.lost_peer import lost_peer
from laconic.exchange.wire import Wire

__all__ = ["Alone", "Joined", "World"]

Ints = NDArray[np.int64]
Values = NDArray[Any]
_TAG = 0  # order suffices: one thread uses a wire


class World(Protocol):
    """All ranks, as one of them sees it."""

    @property
    def rank(self) -> int:
        """Which one this is."""
        ...

    @property
    def ranks(self) -> int:
        """How many there are."""
        ...

    def wire(self, name: str) -> Wire:
        """Open a way to the others; every rank opens the same ones in the same order."""
        ...


@dataclass(frozen=True, slots=True)
class Alone:
    """One rank that has all rows and sends nothing, whatever process group there is."""

    rank: int = 0
    ranks: int = 1

    def wire(self, name: str) -> Wire:
        """Return a wire to nobody."""
        return Wire(name, 0, 1, lambda *_: None)


@dataclass(frozen=True, slots=True)
class Joined:
    """The ranks of a process group of ``torch.distributed``, counted within it."""

    pairwise: bool = True
    """The all-to-all is made of sends and receives; False: torch's own, for comparison."""

    group: Any = None
    """Whose ranks they are, as those of the replicas of one part of a model; None: all of the job."""

    @property
    def rank(self) -> int:
        """Of this process."""
        return dist.get_rank(self.group)

    @property
    def ranks(self) -> int:
        """Processes of the group."""
        return dist.get_world_size(self.group)

    def wire(self, name: str) -> Wire:
        """Open a process group; ``CommError`` if a rank is gone."""
        rank, ranks, group = self.rank, self.ranks, _new_group(self.group)

        def swap(heard: Values, out: Values, coming_N: Ints, sent_N: Ints, where: str) -> None:
            try:
                if self.pairwise:
                    _send_and_receive(_split(heard, coming_N), _split(out, sent_N), rank, group)
                else:
                    ours, theirs = torch.from_numpy(out), torch.from_numpy(heard)
                    dist.all_to_all_single(theirs, ours, coming_N.tolist(), sent_N.tolist(), group=group)
            except RuntimeError as error:
                raise lost_peer(where, rank, error) from error

        tell = Ahead(rank, ranks, group).tell if self.pairwise and ranks > 1 else None
        return Wire(name, rank, ranks, swap, tell, group)


def _split(values: Values, sizes_N: Ints) -> list[Values]:
    """Return views of the values that each rank sends or gets."""
    return np.split(values, np.cumsum(sizes_N)[:-1])


def _send_and_receive(heard: list[Values], out: list[Values], rank: int, group: Any) -> None:
    """Send ``out[r]`` to every other rank r, and fill ``heard[r]`` from it; empty ones do not travel.

    A receive comes before the send, or gloo uses the link in one direction at a time. The calls are what ``dist.isend``
    and ``dist.irecv`` come to, which take as long again for checks: there are twenty messages in a step.
    """
    works: list[Any] = []
    ranks = len(out)
    for distance in range(1, ranks):  # everybody sends to somebody else first
        source, target = (rank - distance) % ranks, (rank + distance) % ranks
        if heard[source].size:
            works.append(group.recv([torch.from_numpy(heard[source])], source, _TAG))
        if out[target].size:
            works.append(group.send([torch.from_numpy(out[target])], target, _TAG))
    for work in works:
        work.wait()


def _new_group(like: Any) -> Any:
    """Return a process group of the same ranks for one wire; those of part of the job need nobody else for it.

    It waits as long as the default group does; torch would give it half an hour.
    """
    default = dist.distributed_c10d._get_default_group()
    try:
        timeout = default._get_backend(torch.device("cpu")).options._timeout
    except RuntimeError:  # the default group knows no CPU; torch's own timeout then
        timeout = None
    how: dict[str, Any] = {"timeout": timeout, "backend": "gloo"}
    if like is not None and dist.get_world_size(like) < dist.get_world_size():
        how |= {"ranks": dist.get_process_group_ranks(like), "use_local_synchronization": True}
    try:
        return dist.new_group(**how)
    except RuntimeError as error:
        raise lost_peer("process group", dist.get_rank(), error) from error
