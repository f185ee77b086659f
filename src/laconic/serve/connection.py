"""HTTP connections with time limits that Uvicorn lacks, a limit on their number, and overload.

::

    beginning, first byte of a head  -- head_s -->  whole head, else the connection is closed
    answer given, body not yet read  -- head_s -->  end of the body, which is dropped
    client stops reading its answer  -- body_s -->  reads again
    one connection too many          -- head_s -->  its first bytes, which 429 answers

A refused body is read and dropped, so that the client sees the refusal. Connections beyond twice
the limit are closed at once. Between a head and its answer the application keeps the time.

Parser, routes and application take long to refuse what they then read for nothing; under overload
most requests are refused, and that time is missing for the others. So a connection asks
``Overload`` first. What that refuses never reaches the parser: the answer is written, and as many
bytes as its head announced are dropped. Only the plainest head gets such an answer; whatever is
unusual about it, the usual way judges it, as if nobody had looked. ::

    POST /v2/models/MODEL[/versions/V]/infer HTTP/1.1    of the model and version at hand
    Host: ...                                            once
    Content-Length: N                                    once, within the limit
    Authorization: Bearer TOKEN                          where the server has one
    anything else but Transfer-Encoding, Expect, Upgrade; Connection: keep-alive alone

All connections that can be read are read before the first of their requests is in the queue. What
was let through in the same iteration of the event loop therefore counts as if it waited already, at
the usual number of samples. It counts for that iteration only, so that a body that never arrives
takes nobody's place.
"""

from __future__ import annotations

import asyncio
import json
import re
from dataclasses import dataclass
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from laconic.serve.deployment import Repository
from laconic.serve.metrics import Metrics
from laconic.serve.refusal import Refusal, bears_token
from laconic.serve.settings import RequestLimits, ServerSettings

__all__ = ["Overload", "Refused", "connection_class"]

_MOST_HEAD = 8192
_END = b"\r\n\r\n"
_HEAD = re.compile(rb"POST ([!-~]+) HTTP/1\.1((?:\r\n[A-Za-z0-9_-]+:[\t -~]*)+)")
_FIELD = re.compile(r"\r\n([^:]+):[\t ]*([^\r]*)")
_ONCE = {"host", "content-length", "authorization", "connection"}
_UNUSUAL = {"transfer-encoding", "expect", "upgrade"}

_MESSAGE = b'{"error":"server: too many connections at once; try again"}'
_FULL = (
    b"HTTP/1.1 429 Too Many Requests\r\nretry-after: 1\r\nconnection: close\r\ncontent-type: application/json\r\n"
    b"content-length: %d\r\n\r\n%s" % (len(_MESSAGE), _MESSAGE)
)
_REFUSED = b"HTTP/1.1 429 Too Many Requests\r\n"
_LEAVING_S = 1.0
"""Seconds that a client has to read a refusal. A connection that is closed while bytes arrive is
reset, and the client would not see the answer."""


@dataclass(frozen=True, slots=True)
class Refused:
    """A refused request: the bytes to drop, and the answer to write."""

    head_bytes: int
    body_bytes: int

    fields: bytes
    """Lines of the answer, between its status and its body."""

    body: bytes


class Overload:
    """Refuses requests by their heads during overload; all connections of a server share it."""

    def __init__(
        self, repository: Repository, settings: ServerSettings, metrics: Metrics, token: str | None
    ) -> None:
        self._repository, self._metrics = repository, metrics
        self._token = None if token is None else token.encode()
        self._path = f"/v2/models/{settings.model}"
        self._most_body = int(settings.limits.body_mb * (1 << 20))
        self._passing = 0

    def refusal(self, data: bytes) -> Refused | None:
        """Refuse the request that ``data`` begins with, or return None where it can be answered."""
        if not data.startswith(b"POST "):
            return None
        refusal = self._overloaded()
        if refusal is None:
            self._passing += 1
            # The application starts on it before the event loop reads again, too.
            asyncio.get_running_loop().call_soon(self._passed)
            return None
        end = data.find(_END, 0, _MOST_HEAD)
        matched = _HEAD.fullmatch(data, 0, end) if end >= 0 else None
        body_bytes = None if matched is None else self._body_bytes(matched[1].decode(), matched[2].decode())
        if body_bytes is None:
            return None
        self._metrics.requests.labels(str(refusal.status)).inc()
        body = json.dumps({"error": str(refusal)}).encode()
        fields = f"retry-after: {refusal.retry_after_s}\r\ncontent-length: {len(body)}\r\ncontent-type: application/json\r\n"
        return Refused(end + len(_END), body_bytes, fields.encode(), body)

    def _passed(self) -> None:
        self._passing -= 1

    def _overloaded(self) -> Refusal | None:
        try:
            batcher = self._repository.current().batcher
            batcher.check_capacity(1 + int(self._passing * batcher.usual_samples))
        except Refusal as refusal:
            return refusal if refusal.status == 429 else None
        return None

    def _body_bytes(self, path: str, lines: str) -> int | None:
        """Return the length of the body; None where anything about the head is unusual."""
        version = self._repository.current().version
        if path not in (f"{self._path}/infer", f"{self._path}/versions/{version}/infer"):
            return None
        fields: dict[str, str] = {}
        for name, value in _FIELD.findall(lines):
            key = name.lower()
            if key in _UNUSUAL or (key in _ONCE and key in fields):
                return None
            fields[key] = value.rstrip(" \t")
        length = fields.get("content-length", "")
        usual = (
            "host" in fields
            and fields.get("connection", "keep-alive").lower() == "keep-alive"
            and re.fullmatch("[0-9]{1,12}", length)
            and int(length) <= self._most_body
            and bears_token(fields.get("authorization", ""), self._token)
        )
        return int(length) if usual else None


class _Connection(H11Protocol):
    limits: RequestLimits
    metrics: Metrics
    overload: Overload

    _timer: asyncio.TimerHandle | None = None
    _write_timer: asyncio.TimerHandle | None = None
    _refused = False
    _leaving = False
    _dropping = 0
    """Bytes of a refused body that have not arrived yet."""
    _asked = False
    """Whether this connection has had a complete request already."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        excess = len(self.connections) - self.limits.connections
        if excess > 0:
            self.metrics.connections_refused.inc()
            self._refused = True
        if excess > self.limits.connections:
            transport.abort()
        self._keep_time()

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        if self._refused:
            self._leave()
            return
        if self._dropping:
            data = self._drop(data)
        elif self._between_requests() and (refused := self.overload.refusal(data)) is not None:
            self._refuse(refused)
            data = self._drop(data[refused.head_bytes :])
        if data:  # one refusal at a time, so that other clients are read in between
            super().data_received(data)
        self._keep_time()

    def on_response_complete(self) -> None:
        self._asked = True
        super().on_response_complete()
        self._keep_time()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop(self._timer)
        self._stop(self._write_timer)
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._write_timer = self.loop.call_later(self.limits.body_s, self.transport.abort)

    def resume_writing(self) -> None:
        self._stop(self._write_timer)
        super().resume_writing()

    def timeout_keep_alive_handler(self) -> None:
        if self.transport.get_write_buffer_size():
            self.transport.abort()
        else:
            super().timeout_keep_alive_handler()

    def _keep_time(self) -> None:
        answering = self.cycle is not None and not self.cycle.response_complete
        idle = self._asked and not self._dropping and self._at_rest()
        if answering or idle or self.transport.is_closing():
            self._stop(self._timer)
            self._timer = None
        elif self._timer is None:
            self._timer = self.loop.call_later(self.limits.head_s, self.transport.abort)

    def _at_rest(self) -> bool:
        return self.conn.their_state is h11.IDLE and not self.conn.trailing_data[0]

    def _between_requests(self) -> bool:
        """Whether the next byte begins a request, and the client reads its answers."""
        return self.conn.our_state is h11.IDLE and self._at_rest() and not self.flow.write_paused

    def _refuse(self, refused: Refused) -> None:
        self._unset_keepalive_if_required()
        self._stop(self._timer)
        self._timer = None  # the body has a time of its own
        usual = b"".join(b"%s: %s\r\n" % field for field in self.server_state.default_headers)
        self.transport.write(b"%s%s%s\r\n%s" % (_REFUSED, usual, refused.fields, refused.body))
        self.server_state.total_requests += 1
        self._asked = True
        self._dropping = refused.body_bytes

    def _drop(self, data: bytes) -> bytes:
        """Return what follows the refused body.

        Once the body has ended, the connection waits for a request.
        """
        dropped = min(len(data), self._dropping)
        self._dropping -= dropped
        if not self._dropping:
            self.timeout_keep_alive_task = self.loop.call_later(
                self.timeout_keep_alive, self.timeout_keep_alive_handler
            )
        return data[dropped:]

    def _leave(self) -> None:
        """Answer 429, and close when the client has had time to read it."""
        if not self._leaving:
            self._leaving = True
            self.transport.write(_FULL)
            self.transport.write_eof()
            self._stop(self._timer)
            self._timer = self.loop.call_later(_LEAVING_S, self.transport.abort)

    @staticmethod
    def _stop(timer: asyncio.TimerHandle | None) -> None:
        if timer is not None:
            timer.cancel()


def connection_class(limits: RequestLimits, metrics: Metrics, overload: Overload) -> type[Any]:
    """Return a protocol class for Uvicorn, with these limits."""
    return type("Connection", (_Connection,), {"limits": limits, "metrics": metrics, "overload": overload})
