"""The body of a request: read within limits of size and time, decompressed within the same limit of size."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Iterator
from contextlib import contextmanager

from starlette.requests import ClientDisconnect, Request

from laconic.serve.refusal import Refusal
from laconic.serve.settings import Limits

__all__ = ["Bodies"]

_MB = 1 << 20
_WINDOWS = {"gzip": 31, "deflate": 15}
"""What zlib wants to hear to expect a header of gzip, or its own."""


class Bodies:
    """All bodies that are at hand, whose bytes have a common limit."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._most = int(limits.body_mb * _MB)
        self._room = int(limits.bodies_mb * _MB)
        self.held_bytes = 0

    @contextmanager
    def room(self) -> Iterator[_Room]:
        """Hold what is read in it until its end."""
        room = _Room(self)
        try:
            yield room
        finally:
            self.held_bytes -= room.taken

    async def read(self, request: Request, room: _Room) -> bytes:
        """Return the body, decompressed; Refusal 400, 408, 413, 415 or 429."""
        encoding = request.headers.get("content-encoding", "identity").strip().lower()
        if encoding not in (*_WINDOWS, "identity"):
            raise Refusal(415, f"Content-Encoding: expected gzip, deflate or none, got {encoding[:40]!r}")
        announced = request.headers.get("content-length", "0")
        if announced.isdigit():
            self._check(int(announced))
        try:
            async with asyncio.timeout(self._limits.body_s):
                body = await self._collect(request, room)
        except TimeoutError:
            raise Refusal(
                408, f"request: its body was not there after {self._limits.body_s:g} s; send it faster"
            ) from None
        except ClientDisconnect:
            raise Refusal(400, "request: the client went away") from None
        return body if encoding == "identity" else self._decompress(body, encoding, room)

    async def _collect(self, request: Request, room: _Room) -> bytes:
        parts: list[bytes] = []
        size = 0
        async for part in request.stream():
            size += len(part)
            self._check(size)
            room.take(len(part))
            parts.append(part)
        return b"".join(parts)

    def _check(self, size: int) -> None:
        if size > self._most:
            raise Refusal(
                413,
                f"request: expected a body of at most {self._most} bytes, got {size} or more; send several",
            )

    def _decompress(self, body: bytes, encoding: str, room: _Room) -> bytes:
        decoder = zlib.decompressobj(_WINDOWS[encoding])
        try:
            plain = decoder.decompress(body, self._most + 1)
        except zlib.error as error:
            raise Refusal(
                400, f"request: expected a body in {encoding}, got something else: {error}"
            ) from None
        self._check(len(plain))
        if not decoder.eof or decoder.unused_data:
            what = "more bytes behind its end" if decoder.eof else "less than all of it"
            raise Refusal(400, f"request: expected one stream of {encoding}, got {what}")
        room.take(len(plain))
        return plain

    def take(self, count: int) -> None:
        """Count bytes, or refuse them."""
        if self.held_bytes + count > self._room:
            raise Refusal(
                429,
                f"server: {self.held_bytes} bytes of requests are at hand, limit {self._room}; try again",
                retry_after_s=1,
            )
        self.held_bytes += count


class _Room:
    def __init__(self, bodies: Bodies) -> None:
        self._bodies = bodies
        self.taken = 0

    def take(self, count: int) -> None:
        self._bodies.take(count)
        self.taken += count
