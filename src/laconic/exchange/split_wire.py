"""Activations and gradients between two ranks of a split model, a message each.

::

    header   values   mask

    header, int64: digest   turn   rows   columns   count   wants gradient   mask bytes   value bytes

A receiver asks before it knows how much will come: for somewhat more than came last time, which its sender knows
too. What exceeds that follows in a second message. So nearly always one message is all, and whoever sends need not
wait to be asked. The header is checked before what follows it is used: a rank that has another split, or is at another
turn, is an error and not a garbled tensor. Messages are matched by sender, receiver and tag; every split has a tag of
its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray

from laconic.errors import CommError
from laconic.exchange.transport import lost_peer

__all__ = ["HEADER_BYTES", "Parcel", "SplitWire"]

Bytes = NDArray[np.uint8]

HEADER_BYTES = 64
_FIRST_ROOM = 4096


@dataclass(frozen=True, slots=True, eq=False)
class Parcel:
    """What one rank sends another in one direction."""

    rows: int
    cols: int
    count: int
    """Values in it."""
    wants_gradient: bool
    mask: Bytes
    values: Bytes


@dataclass(frozen=True, slots=True)
class _Asked:
    """A message that a rank is to send."""

    work: Any
    room: torch.Tensor


class SplitWire:
    """The way between ranks of one split; one thread at a time uses it."""

    def __init__(self, name: str, rank: int, tag: int, digest: int, group: Any) -> None:
        self.name, self.rank = name, rank
        self._tag, self._digest, self._group = tag, digest, group
        self._waited_s = 0.0
        self._sent_room: dict[tuple[int, bool], int] = {}
        self._heard_room: dict[tuple[int, bool], int] = {}
        """Bytes of the first message to and from a rank, there or back, as both ends count them."""
        self._asked: dict[int, _Asked] = {}

    def ask(self, sources: Sequence[int], turn: int, *, back: bool = False) -> None:
        """Be ready for a parcel from each of these ranks; ``receive`` returns it."""
        for source in sources:
            room = torch.empty(self._heard_room.get((source, back), _FIRST_ROOM), dtype=torch.uint8)
            with self._waiting(turn):
                work = dist.irecv(room, source, group=self._group, tag=self._tag)
            self._asked[source] = _Asked(work, room)

    def send(self, parcels: dict[int, Parcel], turn: int, *, back: bool = False) -> list[tuple[Any, Any]]:
        """Begin to send each rank its parcel; give what this returns to ``finish``."""
        works: list[tuple[Any, Any]] = []
        messages = {id(p): self._message(p, turn) for p in parcels.values()}
        for target, p in parcels.items():
            message = messages[id(p)]
            room = self._sent_room.get((target, back), _FIRST_ROOM)
            self._sent_room[target, back] = _next_room(len(message))
            for piece in (message[:room], message[room:]):
                if len(piece):
                    with self._waiting(turn):
                        works.append((dist.isend(piece, target, group=self._group, tag=self._tag), piece))
        return works

    def receive(
        self, source: int, turn: int, most_value_bytes: Callable[[int], int], *, back: bool = False
    ) -> Parcel:
        """Return the parcel that was asked for; ``CommError`` if its rank is elsewhere.

        ``most_value_bytes(count)`` limits what a header can make us allocate.
        """
        asked = self._asked.pop(source)
        with self._waiting(turn):
            asked.work.wait()
        message = asked.room
        digest, at, rows, cols, count, wants, mask, values = message[:HEADER_BYTES].view(torch.int64).tolist()
        if digest != self._digest or at != turn:
            raise CommError(
                f"{self.name}: rank {source} is at turn {at} of split {digest:016x}, rank {self.rank} at turn "
                f"{turn} of split {self._digest:016x}; make the same splits and take the same steps on all ranks"
            )
        fits = rows >= 0 and cols >= 0 and 0 <= count <= rows * cols and wants in (0, 1)
        most_mask = max(8 * count + 16, rows * -(-cols // 8))  # a list of places, or bits
        if not fits or not 0 <= mask <= most_mask or not 0 <= values <= most_value_bytes(count):
            raise CommError(
                f"{self.name}: rank {source} announced {count} of {rows} x {cols} entries in {mask} + {values} "
                f"bytes at turn {turn}; the ranks run different versions"
            )
        size = HEADER_BYTES + values + mask
        self._heard_room[source, back] = _next_room(size)
        if size > len(message):
            message = self._receive_rest(message, size, source, turn)
        body = message.numpy()[HEADER_BYTES:size]
        return Parcel(rows, cols, count, bool(wants), body[values:], body[:values])

    def finish(self, works: list[tuple[Any, Any]], turn: int) -> None:
        """Wait until everything is sent."""
        for work, _ in works:
            with self._waiting(turn):
                work.wait()

    def take_time(self) -> float:
        """Return the time spent in messages since the last call."""
        waited, self._waited_s = self._waited_s, 0.0
        return waited

    def _message(self, p: Parcel, turn: int) -> torch.Tensor:
        message = np.empty(HEADER_BYTES + len(p.values) + len(p.mask), np.uint8)
        sizes = (p.rows, p.cols, p.count, int(p.wants_gradient), len(p.mask), len(p.values))
        message[:HEADER_BYTES].view(np.int64)[:] = (self._digest, turn, *sizes)
        body = message[HEADER_BYTES:]
        body[: len(p.values)], body[len(p.values) :] = p.values, p.mask
        return torch.from_numpy(message)

    def _receive_rest(self, first: torch.Tensor, size: int, source: int, turn: int) -> torch.Tensor:
        whole = torch.empty(size, dtype=torch.uint8)
        whole[: len(first)] = first
        with self._waiting(turn):
            dist.irecv(whole[len(first) :], source, group=self._group, tag=self._tag).wait()  # type: ignore[union-attr]
        return whole

    @contextmanager
    def _waiting(self, turn: int) -> Iterator[None]:
        """Count time, and say what it means when torch gives up."""
        start = perf_counter()
        try:
            yield
        except RuntimeError as error:
            raise lost_peer(f"{self.name}, turn {turn}", self.rank, error) from error
        finally:
            self._waited_s += perf_counter() - start


def _next_room(size: int) -> int:
    """Bytes to be ready for after a message of this size: thresholds keep about as much at the next step."""
    return size + size // 4 + _FIRST_ROOM
