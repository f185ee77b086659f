"""A connection that may not dawdle: time limits that Uvicorn's own lacks, and a limit of their number.

::

    beginning, first byte of a head  -- head_s -->  whole head          else the connection is closed
    answer given, body still coming  -- head_s -->  end of the body     (a refused body is read and dropped: the client sees why)
    client stops reading its answer  -- body_s -->  reads again
    one connection too many          -- head_s -->  its first bytes, which 429 answers; as many again are closed at once

Between a head and its answer the application keeps the time. What ``Overload`` refuses never reaches the parser: the answer is
written, and as many bytes as its head announced are dropped.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

if TYPE_CHECKING:
    from laconic.serve.metrics import Metrics
    from laconic.serve.overload import Overload, Refused
    from laconic.serve.settings import Limits

__all__ = ["connection_class"]

_MESSAGE = b'{"error":"server: too many connections at once; try again"}'
_FULL = (
    b"HTTP/1.1 429 Too Many Requests\r\nretry-after: 1\r\nconnection: close\r\ncontent-type: application/json\r\n"
    b"content-length: %d\r\n\r\n%s" % (len(_MESSAGE), _MESSAGE)
)
_REFUSED = b"HTTP/1.1 429 Too Many Requests\r\n"
_PARTING_S = 1.0
"""Closing while bytes arrive would reset the connection, and the client would not see the answer."""


class _Connection(H11Protocol):
    limits: Limits
    metrics: Metrics
    overload: Overload

    _timer: asyncio.TimerHandle | None = None
    _write_timer: asyncio.TimerHandle | None = None
    _refused = False
    _parting = False
    _dropping = 0
    """Bytes of a refused body that are still to come."""
    _asked = False
    """Whether there was a whole request already."""

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
            self._part()
            return
        if self._dropping:
            data = self._drop(data)
        elif self._between_requests() and (refused := self.overload.refusal(data)) is not None:
            self._refuse(refused)
            data = self._drop(data[refused.head_bytes :])
        if data:  # one refusal at a time: others have a turn before a client that sends many at once
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
        """Whether what comes next is the first byte of a request, and answers are being read."""
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
        """Return what is behind the refused body; at its end, the connection waits for a request."""
        dropped = min(len(data), self._dropping)
        self._dropping -= dropped
        if not self._dropping:
            self.timeout_keep_alive_task = self.loop.call_later(
                self.timeout_keep_alive, self.timeout_keep_alive_handler
            )
        return data[dropped:]

    def _part(self) -> None:
        """Say that there is no room, and leave when the client has had time to read it."""
        if not self._parting:
            self._parting = True
            self.transport.write(_FULL)
            self.transport.write_eof()
            self._stop(self._timer)
            self._timer = self.loop.call_later(_PARTING_S, self.transport.abort)

    @staticmethod
    def _stop(timer: asyncio.TimerHandle | None) -> None:
        if timer is not None:
            timer.cancel()


def connection_class(limits: Limits, metrics: Metrics, overload: Overload) -> type[Any]:
    """Return a protocol for Uvicorn, with these limits."""
    return type("Connection", (_Connection,), {"limits": limits, "metrics": metrics, "overload": overload})
