"""Activations and gradients between two ranks of a split model: a header, then its bytes.

The header, int64::

    digest   turn   rows   columns   count   wants gradient   mask bytes   value bytes

It is checked before data moves: a rank that has another split, or is at another turn, is an error and not a
garbled tensor. Messages are matched by sender, receiver and tag; every split has a tag of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray

from laconic.collectives.lost_peer import lost_peer
from laconic.errors import CommError

__all__ = ["HEADER_BYTES", "Parcel", "SplitWire"]

Bytes = NDArray[np.uint8]

HEADER_BYTES = 64


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


class SplitWire:
    """The way between ranks of one split; one thread at a time uses it."""

    def __init__(self, name: str, rank: int, tag: int, digest: int, group: Any) -> None:
        self.name, self.rank = name, rank
        self._tag, self._digest, self._group = tag, digest, group
        self._waited_s = 0.0

    def send(self, parcels: dict[int, Parcel], turn: int) -> list[tuple[Any, Any]]:
        """Begin to send each rank its parcel; give what this returns to ``finish``."""
        works: list[tuple[Any, Any]] = []
        for target, p in parcels.items():
            sizes = (p.rows, p.cols, p.count, int(p.wants_gradient), len(p.mask), len(p.values))
            pieces = [torch.tensor((self._digest, turn, *sizes))]
            pieces += [torch.from_numpy(piece) for piece in (p.mask, p.values) if len(piece)]
            for piece in pieces:
                with self._waiting(turn):
                    works.append((dist.isend(piece, target, group=self._group, tag=self._tag), piece))
        return works

    def receive(self, source: int, turn: int, most_value_bytes: Callable[[int], int]) -> Parcel:
        """Return the parcel of this turn; ``CommError`` if its rank is elsewhere.

        ``most_value_bytes(count)`` limits what a header can make us allocate.
        """
        header = torch.empty(HEADER_BYTES // 8, dtype=torch.int64)
        self._receive(header, source, turn)
        digest, at, rows, cols, count, wants, mask, values = header.tolist()
        if digest != self._digest or at != turn:
            raise CommError(
                f"{self.name}: rank {source} is at turn {at} of split {digest:016x}, rank {self.rank} at turn "
                f"{turn} of split {self._digest:016x}; make the same splits and take the same steps on all ranks"
            )
        fits = rows >= 0 and cols >= 0 and 0 <= count <= rows * cols and wants in (0, 1)
        if not fits or not 0 <= mask <= 8 * count + 16 or not 0 <= values <= most_value_bytes(count):
            raise CommError(
                f"{self.name}: rank {source} announced {count} of {rows} x {cols} entries in {mask} + {values} "
                f"bytes at turn {turn}; the ranks run different versions"
            )
        pieces = [torch.empty(size, dtype=torch.uint8) for size in (mask, values)]
        for piece in pieces:
            if len(piece):
                self._receive(piece, source, turn)
        return Parcel(rows, cols, count, bool(wants), pieces[0].numpy(), pieces[1].numpy())

    def finish(self, works: list[tuple[Any, Any]], turn: int) -> None:
        """Wait until everything is sent."""
        for work, _ in works:
            with self._waiting(turn):
                work.wait()

    def take_time(self) -> float:
        """Return the time spent in messages since the last call."""
        waited, self._waited_s = self._waited_s, 0.0
        return waited

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

    def _receive(self, piece: torch.Tensor, source: int, turn: int) -> None:
        with self._waiting(turn):
            dist.irecv(piece, source, group=self._group, tag=self._tag).wait()  # type: ignore[union-attr]
