"""A request for scores that is refused from its head, while the queue has no room.

Parser, routes and application take long to refuse what they then read for nothing; under overload most requests
are refused, and that time is missing for the others. So a connection asks here first. Only the plainest head gets an
answer; whatever is unusual about it, the usual way judges it, as if nobody had looked.

All connections that can be read are read before the first of their requests is in the queue. What was let through in the
same turn of the event loop therefore counts as if it waited already, at the usual number of samples; for that turn only, so
that a body that never comes takes nobody's place.

::

    POST /v2/models/MODEL[/versions/V]/infer HTTP/1.1    of the model and version at hand
    Host: ...                                            once
    Content-Length: N                                    once, within the limit
    Authorization: Bearer TOKEN                          where the server has one
    anything else but Transfer-Encoding, Expect, Upgrade; Connection: keep-alive alone
"""

from __future__ import annotations

import asyncio
import json
import re
from dataclasses import dataclass

from laconic.serve.metrics import Metrics
from laconic.serve.refusal import Refusal, bears_token
from laconic.serve.repository import Repository
from laconic.serve.settings import ServerSettings

__all__ = ["Overload", "Refused"]

_MOST_HEAD = 8192
_END = b"\r\n\r\n"
_HEAD = re.compile(rb"POST ([!-~]+) HTTP/1\.1((?:\r\n[A-Za-z0-9_-]+:[\t -~]*)+)")
_FIELD = re.compile(r"\r\n([^:]+):[\t ]*([^\r]*)")
_ONCE = {"host", "content-length", "authorization", "connection"}
_UNUSUAL = {"transfer-encoding", "expect", "upgrade"}


@dataclass(frozen=True, slots=True)
class Refused:
    """What to do with a request that was refused."""

    head_bytes: int
    body_bytes: int

    fields: bytes
    """Lines of the answer, between its status and its body."""

    body: bytes


class Overload:
    """Looks at heads; shared by all connections of a server."""

    def __init__(
        self, repository: Repository, settings: ServerSettings, metrics: Metrics, token: str | None
    ) -> None:
        self._repository, self._metrics = repository, metrics
        self._token = None if token is None else token.encode()
        self._path = f"/v2/models/{settings.model}"
        self._most_body = int(settings.limits.body_mb * (1 << 20))
        self._passing = 0

    def refusal(self, data: bytes) -> Refused | None:
        """Refuse the request that ``data`` begins with, where there is no room; else None."""
        if not data.startswith(b"POST "):
            return None
        refusal = self._no_room()
        if refusal is None:
            self._passing += 1
            asyncio.get_running_loop().call_soon(
                self._passed
            )  # its first step is before the next turn of reading, too
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

    def _no_room(self) -> Refusal | None:
        try:
            batcher = self._repository.current().batcher
            batcher.check_room(1 + int(self._passing * batcher.usual_samples))
        except Refusal as refusal:
            return refusal if refusal.status == 429 else None
        return None

    def _body_bytes(self, path: str, lines: str) -> int | None:
        """Length of the body of a head without anything unusual."""
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
