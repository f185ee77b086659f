"""Activations and gradients between two ranks of a split model, one message each.

::

    header   values   mask

    header, int64: digest  turn  rows  columns  count  wants gradient  mask bytes  value bytes

A receiver posts its receive before it knows how much will come. It expects somewhat more than came
last time, and the sender knows that number too. What exceeds it follows in a second message. So one
message is nearly always enough, and a sender need not wait until its receiver is ready.

The header is checked before anything behind it is used: a rank that has another split, or is at
another turn, is an error and not a garbled tensor. Messages are matched by sender, receiver and
tag; every split has its own tag.

``LocalWire`` is the same for ranks of one process: it hands messages over in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from time import perf_counter
from typing import Any, Protocol
from zlib import crc32

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray

from laconic.errors import CommError
from laconic.exchange.ranks.transport import lost_peer

__all__ = ["HEADER_BYTES", "GroupWire", "LocalWire", "SplitMessage", "SplitWire"]

Bytes = NDArray[np.uint8]

HEADER_BYTES = 64
_FIRST_BYTES = 4096


@dataclass(frozen=True, slots=True, eq=False)
class SplitMessage:
    """What one rank sends another in one direction."""

    rows: int
    cols: int
    count: int
    """Number of values in it."""
    wants_gradient: bool
    mask: Bytes
    values: Bytes


class SplitWire(Protocol):
    """The way from one rank of a split to the others; one thread at a time uses it.

    ``back`` says that gradients travel, from targets to sources.
    """

    def post(self, sources: Sequence[int], turn: int, *, back: bool = False) -> None:
        """Post the receive of a message from each of these ranks."""
        ...

    def send(self, messages: Mapping[int, SplitMessage], turn: int, *, back: bool = False) -> None:
        """Begin to send each rank its message."""
        ...

    def receive(self, source: int, turn: int, *, back: bool = False) -> SplitMessage:
        """Wait for a message whose receive was posted.

        ``CommError`` if its rank is at another turn or has another split.
        """
        ...

    def finish(self, turn: int) -> None:
        """Wait until everything is sent."""
        ...

    def take_time(self) -> float:
        """Return the seconds spent in messages since the last call."""
        ...


class LocalWire:
    """Hands messages over in memory, between ranks of one process that take turns in one thread."""

    def __init__(self, rank: int, mailbox: dict[tuple[int, int], SplitMessage]) -> None:
        """All ranks of a split have the same ``mailbox``: messages by sender and receiver."""
        self._rank, self._mailbox = rank, mailbox

    def post(self, sources: Sequence[int], turn: int, *, back: bool = False) -> None:
        """Do nothing: messages need no memory of their receiver."""

    def send(self, messages: Mapping[int, SplitMessage], turn: int, *, back: bool = False) -> None:
        """Leave each rank its message."""
        for target, message in messages.items():
            self._mailbox[self._rank, target] = message

    def receive(self, source: int, turn: int, *, back: bool = False) -> SplitMessage:
        """Return the message, which its sender has left before."""
        return self._mailbox.pop((source, self._rank))

    def finish(self, turn: int) -> None:
        """Do nothing: what was sent has arrived."""

    def take_time(self) -> float:
        """Return 0: no message takes time."""
        return 0.0


@dataclass(frozen=True, slots=True)
class _PostedReceive:
    work: Any
    buffer: torch.Tensor


class GroupWire:
    """Sends and receives of ``torch.distributed``."""

    def __init__(
        self, name: str, rank: int, digest: int, max_value_bytes: Callable[[int], int], group: Any
    ) -> None:
        """``digest`` tells splits apart; ``max_value_bytes(count)`` limits what is allocated."""
        self.name, self.rank = name, rank
        self._tag = crc32(name.encode()) & 0x7FFFFFFF  # gloo wants one below 2^31
        self._digest, self._max_value_bytes, self._group = digest, max_value_bytes, group
        self._waited_s = 0.0
        self._sent_bytes: dict[tuple[int, bool], int] = {}
        self._received_bytes: dict[tuple[int, bool], int] = {}
        """Bytes of the first message to and from a rank, there or back, as both ends count them."""
        self._posted: dict[int, _PostedReceive] = {}
        self._sending: list[tuple[Any, torch.Tensor]] = []

    def post(self, sources: Sequence[int], turn: int, *, back: bool = False) -> None:
        """Post the receive of a message from each of these ranks."""
        for source in sources:
            size = self._received_bytes.get((source, back), _FIRST_BYTES)
            buffer = torch.empty(size, dtype=torch.uint8)
            with self._waiting(turn):
                work = dist.irecv(buffer, source, group=self._group, tag=self._tag)
            self._posted[source] = _PostedReceive(work, buffer)

    def send(self, messages: Mapping[int, SplitMessage], turn: int, *, back: bool = False) -> None:
        """Begin to send each rank its message; one that goes to several is laid out once."""
        laid_out = {id(message): self._lay_out(message, turn) for message in messages.values()}
        for target, message in messages.items():
            whole = laid_out[id(message)]
            first = self._sent_bytes.get((target, back), _FIRST_BYTES)
            self._sent_bytes[target, back] = _next_bytes(len(whole))
            for piece in (whole[:first], whole[first:]):
                if len(piece):
                    with self._waiting(turn):
                        work = dist.isend(piece, target, group=self._group, tag=self._tag)
                    self._sending.append((work, piece))

    def receive(self, source: int, turn: int, *, back: bool = False) -> SplitMessage:
        """Wait for a message whose receive was posted.

        ``CommError`` if its rank is at another turn or has another split.
        """
        posted = self._posted.pop(source)
        with self._waiting(turn):
            posted.work.wait()
        message = posted.buffer
        digest, at, rows, cols, count, wants, mask, values = message[:HEADER_BYTES].view(torch.int64).tolist()
        if digest != self._digest or at != turn:
            raise CommError(
                f"{self.name}: rank {source} is at turn {at} of split {digest:016x}, rank {self.rank} at turn "
                f"{turn} of split {self._digest:016x}; make the same splits and take the same steps on all ranks"
            )
        fits = rows >= 0 and cols >= 0 and 0 <= count <= rows * cols and wants in (0, 1)
        most_mask = max(8 * count + 16, rows * -(-cols // 8))  # a list of places, or bits
        if not fits or not 0 <= mask <= most_mask or not 0 <= values <= self._max_value_bytes(count):
            raise CommError(
                f"{self.name}: rank {source} announced {count} of {rows} x {cols} entries in {mask} + {values} "
                f"bytes at turn {turn}; the ranks run different versions"
            )
        size = HEADER_BYTES + values + mask
        self._received_bytes[source, back] = _next_bytes(size)
        if size > len(message):
            message = self._receive_rest(message, size, source, turn)
        body = message.numpy()[HEADER_BYTES:size]
        return SplitMessage(rows, cols, count, bool(wants), body[values:], body[:values])

    def finish(self, turn: int) -> None:
        """Wait until everything is sent."""
        sending, self._sending = self._sending, []
        for work, _ in sending:
            with self._waiting(turn):
                work.wait()

    def take_time(self) -> float:
        """Return the seconds spent in messages since the last call."""
        waited, self._waited_s = self._waited_s, 0.0
        return waited

    def _lay_out(self, message: SplitMessage, turn: int) -> torch.Tensor:
        values, mask = message.values, message.mask
        whole = np.empty(HEADER_BYTES + len(values) + len(mask), np.uint8)
        sizes = (
            message.rows,
            message.cols,
            message.count,
            int(message.wants_gradient),
            len(mask),
            len(values),
        )
        whole[:HEADER_BYTES].view(np.int64)[:] = (self._digest, turn, *sizes)
        body = whole[HEADER_BYTES:]
        body[: len(values)], body[len(values) :] = values, mask
        return torch.from_numpy(whole)

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


def _next_bytes(size: int) -> int:
    """Return the bytes to expect after a message of this size: the next one is about as long."""
    return size + size // 4 + _FIRST_BYTES
