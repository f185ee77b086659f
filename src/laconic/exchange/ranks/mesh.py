"""One connection between every two ranks, for all transports of a process group.

gloo connects every two ranks of a group when the group is made. If each transport had a group of
its own, a rank would need as many sockets for each of them as there are other ranks. So all share
one group beside the user's, and tell their messages apart by tags. The user's own group stays free
for collectives, whose order on it is theirs.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from weakref import WeakKeyDictionary, finalize

import torch
import torch.distributed as dist

from laconic.exchange.ranks.transport import lost_peer

__all__ = ["TAGS", "Mesh", "mesh_of", "new_group", "timeout_of"]

TAGS = 3
"""Number of tags that each transport has for itself."""


@dataclass(slots=True)
class Mesh:
    """A process group for sends and receives of all transports between the same ranks."""

    group: Any
    _opened: int = 0

    def take_tags(self) -> int:
        """Return the first tag of a new transport; ranks open them in the same order."""
        self._opened += 1
        return TAGS * self._opened


_meshes: WeakKeyDictionary[Any, Mesh] = WeakKeyDictionary()  # by the user's process group


def mesh_of(group: Any) -> Mesh:
    """Return the mesh beside a process group, None for the default one.

    All ranks of the group must call it for the first time together; ``CommError`` if one is gone.
    It leaves when the group is destroyed and nobody holds that any more: a transport that closes is
    no reason, because ranks may close theirs at different times.
    """
    beside = dist.distributed_c10d._get_default_group() if group is None else group
    if beside not in _meshes:
        _meshes[beside] = mesh = Mesh(new_group(group))
        finalize(beside, _leave, mesh.group).atexit = False
    return _meshes[beside]


def _leave(group: Any) -> None:
    with suppress(ValueError, RuntimeError):  # the whole job has left, and torch no longer knows it
        dist.destroy_process_group(group)


def timeout_of(group: Any) -> timedelta:
    """Return how long a process group of gloo waits for a message."""
    timeout: timedelta = group._get_backend(torch.device("cpu")).options._timeout
    return timeout


def new_group(like: Any) -> Any:
    """Return a process group of gloo with the same ranks; no other rank is needed.

    It waits as long as that group does; torch would give it half an hour.
    """
    known = dist.distributed_c10d._get_default_group() if like is None else like
    try:
        timeout = timeout_of(known)
    except RuntimeError:  # that group knows no CPU; torch's own timeout then
        timeout = None
    how: dict[str, Any] = {"timeout": timeout, "backend": "gloo"}
    if like is not None and dist.get_world_size(like) < dist.get_world_size():
        how |= {"ranks": dist.get_process_group_ranks(like), "use_local_synchronization": True}
    try:
        return dist.new_group(**how)
    except RuntimeError as error:
        raise lost_peer("process group", dist.get_rank(), error) from error
