"""HTTP clients that cost little: requests are bytes made before, answers are read and not understood."""

from __future__ import annotations

import asyncio
import re
import time
from dataclasses import dataclass, field

__all__ = ["Client", "Outcomes", "closed_loop", "open_loop"]

_LENGTH = re.compile(rb"\r\ncontent-length: (\d+)", re.IGNORECASE)


@dataclass(slots=True)
class Outcomes:
    """What became of requests."""

    seconds: float = 0.0
    statuses: dict[int, int] = field(default_factory=dict)
    """Answers by status; 0 is a connection that failed."""

    latencies_s: list[float] = field(default_factory=list)
    """Of answers with 200, from the moment when the request was due."""

    unsent: int = 0
    """Requests that were due while every connection waited for an answer."""

    def add(self, status: int, seconds: float) -> None:
        """Take one answer."""
        self.statuses[status] = self.statuses.get(status, 0) + 1
        if status == 200:
            self.latencies_s.append(seconds)


class Client:
    """One connection, one request at a time."""

    def __init__(self, host: str, port: int) -> None:
        self._address = (host, port)
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(self, request: bytes) -> int:
        """Send and wait; the status, 0 where the connection failed."""
        if self._streams is not None and self._streams[0].at_eof():
            self.close()  # by the server, which does not keep idle connections
        try:
            if self._streams is None:
                self._streams = await asyncio.open_connection(*self._address)
            reader, writer = self._streams
            writer.write(request)
            head = await reader.readuntil(b"\r\n\r\n")
            found = _LENGTH.search(head)
            await reader.readexactly(int(found[1]) if found else 0)
            if b"connection: close" in head.lower():
                self.close()
            return int(head[9:12])
        except (OSError, asyncio.IncompleteReadError):
            self.close()
            return 0

    def close(self) -> None:
        """Let go of the connection; the next request makes another."""
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None


async def closed_loop(
    host: str, port: int, requests: list[bytes], connections: int, seconds: float
) -> Outcomes:
    """Ask on some connections without a pause: what the server can do."""
    outcomes = Outcomes()
    begin = time.monotonic()

    async def ask_on(client: Client, number: int) -> None:
        while time.monotonic() - begin < seconds:
            sent = time.monotonic()
            outcomes.add(await client.ask(requests[number % len(requests)]), time.monotonic() - sent)
            number += connections
        client.close()

    await asyncio.gather(*(ask_on(Client(host, port), number) for number in range(connections)))
    outcomes.seconds = time.monotonic() - begin
    return outcomes


async def open_loop(
    host: str, port: int, requests: list[bytes], connections: int, rate: float, seconds: float
) -> Outcomes:
    """Ask ``rate`` times a second, whatever the server does."""
    outcomes = Outcomes()
    free = [Client(host, port) for _ in range(connections)]
    everyone = list(free)
    tasks: set[asyncio.Task[None]] = set()

    async def ask_once(client: Client, number: int, due: float) -> None:
        status = await client.ask(requests[number % len(requests)])
        outcomes.add(status, time.monotonic() - due)
        free.append(client)

    begin = time.monotonic()
    number = 0
    while (now := time.monotonic() - begin) < seconds:
        while number < now * rate:
            if free:
                task = asyncio.create_task(ask_once(free.pop(), number, begin + number / rate))
                tasks.add(task)
                task.add_done_callback(tasks.discard)
            else:
                outcomes.unsent += 1
            number += 1
        await asyncio.sleep(0.001)
    outcomes.seconds = time.monotonic() - begin
    await asyncio.gather(*tasks)
    for client in everyone:
        client.close()
    return outcomes
