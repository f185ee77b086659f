"""What a rank needs of its machine as ranks become many: descriptors, and memory for messages.

gloo connects every two ranks of a group. There are two groups, the default one of torch and that of
the messages (``exchange.ranks.mesh``), so a rank has two sockets for each other rank. Transports
share them, but each has memory of its own to receive in and to send from
(``exchange.ranks.posted``). A run has five: ids, rows, two lanes of dense gradients, and small
values of all ranks. Where tables have several dimensions, each has ids and rows of its own.
"""

from __future__ import annotations

from dataclasses import dataclass

from laconic.errors import ConfigError
from laconic.exchange.ranks.posted import receive_bytes

__all__ = ["RankNeeds", "rank_needs"]

_GROUPS = 2
_OTHER_DESCRIPTORS = 13
"""Standard streams, the store, gloo's own and metrics of rank 0 (torch 2.13; 12 of other ranks)."""
_TRANSPORTS = 5
_BOTH_WAYS = 2


@dataclass(frozen=True, slots=True)
class RankNeeds:
    """What one rank needs."""

    descriptors: int
    """Open files and sockets: what ``ulimit -n`` limits."""
    least_buffer_bytes: int
    """Memory of messages at the start."""
    most_buffer_bytes: int
    """The most that it grows to; longer messages are received where they are used."""


def rank_needs(ranks: int) -> RankNeeds:
    """Return what each of so many ranks needs."""
    if ranks < 1:
        raise ConfigError(f"simulate: expected at least one rank, got {ranks!r}")
    others = ranks - 1
    least, most = (_TRANSPORTS * _BOTH_WAYS * others * size for size in receive_bytes(ranks))
    return RankNeeds(_GROUPS * others + _OTHER_DESCRIPTORS, least, most)
