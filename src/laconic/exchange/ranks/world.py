"""Who the ranks are: those of a process group, or one or several in this process."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from threading import RLock
from typing import Any, Protocol

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray

from laconic.errors import CommError, ConfigError
from laconic.exchange.ranks.mesh import mesh_of, new_group
from laconic.exchange.ranks.posted import PostedTransport
from laconic.exchange.ranks.transport import Message, Transport

__all__ = ["GroupWorld", "LocalWorld", "World", "one_rank"]

Ints = NDArray[np.int64]
Values = NDArray[Any]
_PATIENCE_S = 120


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

    @property
    def all_remote(self) -> bool:
        """Whether a rank sends itself what it asks of itself, as if another had it."""
        ...

    def transport(self, name: str) -> Transport:
        """Open a way to the others; every rank opens the same ones in the same order."""
        ...


@dataclass(frozen=True, slots=True)
class GroupWorld:
    """The ranks of a process group of ``torch.distributed``, counted within it."""

    pairwise: bool = True
    """Messages are sends and receives; False: torch's own all-to-all, for comparison."""

    group: Any = None
    """Process group of torch, such as that of one part's replicas; None: the default one."""

    @property
    def all_remote(self) -> bool:
        """Real ranks do not send themselves anything."""
        return False

    @property
    def rank(self) -> int:
        """Of this process."""
        return dist.get_rank(self.group)

    @property
    def ranks(self) -> int:
        """Processes of the group."""
        return dist.get_world_size(self.group)

    def transport(self, name: str) -> Transport:
        """Open a way to the others; ``CommError`` if a rank is gone."""
        if self.pairwise:
            mesh = mesh_of(self.group)
            return PostedTransport(name, self.rank, self.ranks, mesh.group, mesh.take_tags())
        return _CollectiveTransport(name, self.rank, self.ranks, new_group(self.group))


class LocalWorld:
    """Ranks in one process that hand messages over in memory: ``LocalWorld(4).of(2)``."""

    def __init__(self, ranks: int, patience_s: float = _PATIENCE_S, *, all_remote: bool = False) -> None:
        """``patience_s``: how long a rank waits for a message.

        It is 0 where one thread takes all ranks through their stages. ``all_remote``: ranks also
        encode what they ask of themselves, as on a cluster where they own little of it.
        """
        if ranks < 1:
            raise ConfigError(f"world.ranks: expected at least 1, got {ranks!r}")
        self.ranks, self.all_remote, self._patience_s = ranks, all_remote, patience_s
        self._queues: defaultdict[tuple[int, int, int], SimpleQueue[Any]] = defaultdict(SimpleQueue)
        self._opened = [0] * ranks
        self._failed = False
        self._opening = RLock()  # two ranks that look for one queue at once would make two

    def of(self, rank: int) -> World:
        """Return the world as one rank sees it."""
        return _LocalRank(rank, self.ranks, self)

    def open(self, name: str, rank: int) -> Transport:
        """Open a rank's next transport, which meets those that the others open as their next."""
        number, others = self._opened[rank], [other for other in range(self.ranks) if other != rank]
        self._opened[rank] += 1
        with self._opening:
            outgoing = {other: self._queues[number, rank, other] for other in others}
            incoming = {other: self._queues[number, other, rank] for other in others}
            if self._failed:
                self.fail()
        return _LocalTransport(name, rank, outgoing, incoming, self._patience_s)

    def fail(self) -> None:
        """Let every rank that waits for a message, or will, end with ``CommError``."""
        with self._opening:
            self._failed = True
            for queue in self._queues.values():
                queue.put(_FAILED)


def one_rank() -> World:
    """Return the world of one rank, which has all rows and sends nothing."""
    return LocalWorld(1).of(0)


@dataclass(frozen=True, slots=True)
class _LocalRank:
    rank: int
    ranks: int
    world: LocalWorld = field(repr=False, compare=False)

    @property
    def all_remote(self) -> bool:
        return self.world.all_remote

    def transport(self, name: str) -> Transport:
        return self.world.open(name, self.rank)


_FAILED = object()


class _LocalTransport(Transport):
    """A queue from every rank to every other."""

    def __init__(
        self,
        name: str,
        rank: int,
        outgoing: dict[int, SimpleQueue[Any]],
        incoming: dict[int, SimpleQueue[Any]],
        patience_s: float,
    ) -> None:
        super().__init__(name, rank, 1 + len(outgoing))
        self._outgoing, self._incoming, self._patience_s = outgoing, incoming, patience_s

    def _send(self, messages: tuple[Message, ...]) -> None:
        for other, queue in self._outgoing.items():
            for message in messages:
                queue.put(message.part(other).copy())  # the memory is used again before it is read

    def _receive(self, out: Values, sizes_N: Ints) -> None:
        parts = np.split(out, np.cumsum(sizes_N)[:-1])
        for other in self._incoming:
            parts[other][:] = self._next(other)

    def _begin_swap(self, out: Values, message: Message, sizes_N: Ints) -> Callable[[], None]:
        for other, queue in self._outgoing.items():
            queue.put(message.part(other).copy())
        return lambda: self._receive(out, sizes_N)

    def _next(self, source: int) -> Any:
        try:
            value = self._incoming[source].get(timeout=self._patience_s)
        except Empty as error:
            raise CommError(
                f"{self.name}: expected a message of rank {source} within {self._patience_s:g} s, got none; "
                "every rank of this process must take the same steps"
            ) from error
        if value is _FAILED:
            self._incoming[source].put(value)  # for whoever asks next
            raise CommError(f"{self.name}: another rank of this process failed; see its error")
        return value


class _CollectiveTransport(Transport):
    """Every message by torch's own all-to-all."""

    def __init__(self, name: str, rank: int, ranks: int, group: Any) -> None:
        super().__init__(name, rank, ranks)
        self._group = group
        self._under_way: list[Message] = []

    def close(self) -> None:
        """Leave the process group, if the whole job has not left already."""
        with suppress(ValueError):  # torch no longer knows it
            dist.destroy_process_group(self._group)

    def _send(self, messages: tuple[Message, ...]) -> None:
        self._under_way = list(messages)

    def _receive(self, out: Values, sizes_N: Ints) -> None:
        self._all_to_all(out, self._under_way.pop(0), sizes_N)

    def _begin_swap(self, out: Values, message: Message, sizes_N: Ints) -> Callable[[], None]:
        return lambda: self._all_to_all(out, message, sizes_N)

    def _all_to_all(self, out: Values, message: Message, sizes_N: Ints) -> None:
        sent = np.concatenate([message.part(rank) for rank in range(self.ranks)])
        ours, theirs = torch.from_numpy(sent), torch.from_numpy(out)
        dist.all_to_all_single(theirs, ours, sizes_N.tolist(), message.sizes_N.tolist(), group=self._group)
