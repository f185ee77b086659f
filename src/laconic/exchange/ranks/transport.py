"""Messages between all ranks for one purpose: rows, ids or sums.

In a turn a rank sends each other rank a head (``heads``), and with it any number of messages. Heads
are checked before anything else is used: ranks that disagree about the turn or the plan all raise,
none hangs. Messages leave with their heads, so that nobody's bytes wait for the sizes of a slower
rank. One thread uses a transport, which keeps the order of messages the same on every rank.
What carries them is in ``world`` and ``posted``.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from time import perf_counter
from typing import Any, TypeVar

import numpy as np
import torch.distributed as dist
from numpy.typing import NDArray

from laconic.errors import CommError
from laconic.exchange.ranks.heads import Head, Heads, decode_heads, encode_heads
from laconic.exchange.ranks.worker import Worker

__all__ = [
    "Buffers",
    "Channel",
    "Head",
    "Heads",
    "Message",
    "Transport",
    "bounds_of",
    "even_bounds",
    "is_lost_peer",
    "lost_peer",
]

Ints = NDArray[np.int64]
Values = NDArray[Any]
Result = TypeVar("Result")
_SIGNS_OF_A_LOST_PEER = (
    *(
        "gloo",
        "Gloo",
        "Connection closed by peer",
        "Connection reset by peer",
        "Broken pipe",
        "Timed out waiting",
    ),
)


@dataclass(frozen=True, slots=True)
class Message:
    """Values for every rank, this one included.

    Rank r gets ``sizes_N[r]`` of them, from ``starts_N[r]`` on.
    """

    values: Values
    sizes_N: Ints
    starts_N: Ints

    @classmethod
    def each(cls, values: Values, sizes_N: Ints) -> Message:
        """Make one of other values for every rank, back to back."""
        return cls(values, sizes_N, np.cumsum(sizes_N) - sizes_N)

    @classmethod
    def same(cls, values: Values, ranks: int, but: int | None = None) -> Message:
        """Make one of the same values for all ranks, or for all but one."""
        sizes_N = np.full(ranks, len(values))
        if but is not None:
            sizes_N[but] = 0
        return cls(values, sizes_N, np.zeros(ranks, np.int64))

    def part(self, rank: int) -> Values:
        """Return what is for one rank."""
        start = int(self.starts_N[rank])
        return self.values[start : start + int(self.sizes_N[rank])]

    def sent_bytes(self, rank: int) -> int:
        """Bytes that leave a rank."""
        return int(self.sizes_N.sum() - self.sizes_N[rank]) * self.values.itemsize


class Transport(ABC):
    """All ranks, as one of them reaches the others for one purpose."""

    def __init__(self, name: str, rank: int, ranks: int) -> None:
        self.name, self.rank, self.ranks = name, rank, ranks
        self.bytes_sent = 0
        """By this rank, so far."""
        self.patience_s: float | None = None
        """Longest wait for a message, if the process group does not wait longer anyway."""
        self._waited_s = 0.0
        self._head: Head | None = None
        self._buffers = Buffers()
        self._own: deque[Values] = deque()  # what this rank has for itself of each message under way

    def send(self, head: Head, *messages: Message) -> int:
        """Begin a turn: tell each rank what it will get, and send it; returns the heads' bytes."""
        heads = Message.each(*encode_heads(head, self.rank))
        sizes = Message.each(heads.sizes_N.astype(np.int32), np.ones(self.ranks, np.int64))
        self._head = head
        self._own.extend(message.part(self.rank) for message in messages)
        announced = sizes.sent_bytes(self.rank) + heads.sent_bytes(self.rank)
        self.bytes_sent += announced + sum(message.sent_bytes(self.rank) for message in messages)
        with self._waiting():
            self._send((sizes, heads, *messages))
        return announced

    def hear(self, expected_NK: Ints | None = None) -> Heads:
        """Hear what all ranks announce in this turn; ``CommError`` if one is elsewhere.

        ``expected_NK``: counts that the others announce, where these are known and do not travel.
        """
        head = self._head
        assert head is not None, "send comes first"
        assert (expected_NK is not None) == head.counts_known, "either they travel or they are known"
        sizes_N = np.zeros(self.ranks, np.int32)
        with self._waiting():
            self._arrive()
            self._receive(sizes_N, np.ones(self.ranks, np.int64))
            sizes_N[self.rank] = 0
            data = self._buffers.reserve("heads", int(sizes_N.sum()), np.uint8)
            self._receive(data, sizes_N.astype(np.int64))
        expected_NK = head.counts_NK if expected_NK is None else expected_NK
        return decode_heads(self.name, self.rank, head, data, sizes_N.astype(np.int64), expected_NK)

    def announce(self, head: Head, *messages: Message) -> Heads:
        """Send and hear; ``receive`` the messages of the others in the same order."""
        self.send(head, *messages)
        return self.hear()

    def receive(self, out: Values, sizes_N: Ints) -> None:
        """Take the next message of this turn from all ranks, ``sizes_N`` values from each."""
        _part(out, sizes_N, self.rank)[:] = self._own.popleft()
        with self._waiting():
            self._receive(out, sizes_N)

    def swap(self, out: Values, message: Message, sizes_N: Ints) -> None:
        """Send a message whose sizes all ranks know, and take theirs."""
        self.begin_swap(out, message, sizes_N)()

    def begin_swap(self, out: Values, message: Message, sizes_N: Ints) -> Callable[[], None]:
        """Begin to swap; call what is returned to fill ``out`` before anything else is sent."""
        self.bytes_sent += message.sent_bytes(self.rank)
        _part(out, sizes_N, self.rank)[:] = message.part(self.rank)
        with self._waiting():
            end = self._begin_swap(out, message, sizes_N)

        def finish() -> None:
            with self._waiting():
                end()

        return finish

    def take_time(self) -> float:
        """Return the seconds spent in messages since the last call."""
        waited, self._waited_s = self._waited_s, 0.0
        return waited

    def close(self) -> None:  # noqa: B027  # most have nothing to leave
        """Leave; every rank alike."""

    @contextmanager
    def _waiting(self) -> Iterator[None]:
        """Count time, and say what it means when torch gives up."""
        start = perf_counter()
        try:
            yield
        except CommError:
            raise
        except RuntimeError as error:
            turn = "" if self._head is None else f", turn {self._head.turn}"
            raise lost_peer(self.name + turn, self.rank, error) from error
        finally:
            self._waited_s += perf_counter() - start

    @abstractmethod
    def _send(self, messages: tuple[Message, ...]) -> None:
        """Begin a turn: send every rank its part of each message."""

    def _arrive(self) -> None:  # noqa: B027  # most receive one message after the other
        """Wait for the others to have begun the turn."""

    @abstractmethod
    def _receive(self, out: Values, sizes_N: Ints) -> None:
        """Fill ``out`` but for this rank's own part."""

    @abstractmethod
    def _begin_swap(self, out: Values, message: Message, sizes_N: Ints) -> Callable[[], None]:
        """Send; what is returned fills ``out`` but for this rank's own part."""


class Buffers:
    """Memory by name, which grows and is used again every step."""

    def __init__(self) -> None:
        self._bytes: dict[str, NDArray[np.uint8]] = {}

    def reserve(self, name: str, shape: int | tuple[int, ...], dtype: Any) -> Values:
        """Return memory for this many values, which starts on a cache line and is used again."""
        size = int(np.prod(shape)) * np.dtype(dtype).itemsize
        kept = self._bytes.get(name)
        if kept is None or len(kept) < size + 64:
            kept = self._bytes[name] = np.empty(size + size // 4 + 64, np.uint8)
        skip = -kept.__array_interface__["data"][0] % 64
        reserved: Values = kept[skip : skip + size].view(dtype).reshape(shape)
        return reserved


class Channel:
    """A transport for one sum after the other, with memory by name and a thread.

    Every round of messages says which sum it belongs to and what that is, so that ranks that sum
    different things all raise, and none hangs.
    """

    def __init__(self, transport: Transport) -> None:
        self.transport = transport
        self.rank, self.ranks = transport.rank, transport.ranks
        self.receive, self.swap = transport.receive, transport.swap
        self._turn, self._digest, self._elsewhere = 0, 0, 0
        self.encode_s = 0.0
        """Seconds from the begin of each sum to its first message, so far."""
        self._began_s: float | None = None
        self._buffers = Buffers()
        self._worker: Worker | None = None

    @property
    def bytes_sent(self) -> int:
        """Bytes that this rank sent for sums, so far."""
        return self.transport.bytes_sent + self._elsewhere

    def count(self, nbytes: int) -> None:
        """Add bytes that left by another way, or take off some that were for no sum."""
        self._elsewhere += nbytes

    def begin(self, digest: int) -> None:
        """Go on to the next sum; ``digest`` stands for all that must be the same on every rank."""
        self._turn += 1
        self._digest = digest
        self._began_s = perf_counter()

    def buffer(self, name: str, count: int, dtype: Any) -> Values:
        """Return memory of this name, overwritten every time it is asked for."""
        return self._buffers.reserve(name, count, dtype)

    def later(self, task: Callable[..., Result], *args: Any) -> Future[Result]:
        """Do this in the channel's thread, after what was asked before.

        Nothing else may use the channel meanwhile.
        """
        if self._worker is None:
            self._worker = Worker("laconic-all-reduce")
        return self._worker.submit(task, *args)

    def announce(self, numbers_NK: Ints, *messages: Message) -> Ints:
        """Tell each rank K numbers, and hear those of each.

        Messages leave at once; the others receive them in the same order.
        """
        if self._began_s is not None:
            self.encode_s += perf_counter() - self._began_s
            self._began_s = None
        head = Head(self._turn, self._digest, 0, numbers_NK, np.zeros_like(numbers_NK))
        return self.transport.announce(head, *messages).counts_NK

    def announce_to_all(self, *numbers: int, messages: Sequence[Message] = ()) -> Ints:
        """Tell every rank the same numbers."""
        return self.announce(np.tile(np.array(numbers, np.int64), (self.ranks, 1)), *messages)

    def to_all(self, values: Values) -> Message:
        """Make a message of the same values for all ranks."""
        return Message.same(values, self.ranks)

    def close(self) -> None:
        """End the thread and leave."""
        if self._worker is not None:
            self._worker.close()
        self.transport.close()


def _part(values: Values, sizes_N: Ints, rank: int) -> Values:
    start = int(sizes_N[:rank].sum())
    return values[start : start + int(sizes_N[rank])]


def even_bounds(words: int, parts: int, multiple: int = 1) -> Ints:
    """Cut so many words into parts that differ by at most ``multiple``, at multiples of it."""
    units = -(-words // multiple)
    return np.minimum(np.arange(parts + 1) * units // parts * multiple, words)


def bounds_of(sizes: Ints) -> Ints:
    """Where parts of these sizes begin, back to back, and the last ends."""
    return np.concatenate([[0], np.cumsum(sizes)])


def is_lost_peer(error: BaseException) -> bool:
    """Whether an error of torch means that another rank or the way to it is gone."""
    return isinstance(error, dist.DistError) or any(sign in str(error) for sign in _SIGNS_OF_A_LOST_PEER)


def lost_peer(where: str, rank: int, error: BaseException) -> CommError:
    """Say what a failed collective means to the user."""
    text = (
        str(error).strip().removeprefix("Got the following error when running the callback: RuntimeError: ")
    )
    cause = re.sub(r"\[[^]]*\.\w+:\d+\] ", "", text.splitlines()[0]) if text else type(error).__name__
    return CommError(
        f"{where}: rank {rank} lost a peer ({cause.split('. This is typically')[0]}); a rank or a link is down, "
        "see the first error of the other ranks; continue from the last checkpoint with --resume"
    )
