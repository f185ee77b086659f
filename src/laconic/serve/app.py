"""The Open Inference Protocol v2 over HTTP, for one model.

::

    GET   /v2                                      name and extensions
    GET   /v2/health/live  /v2/health/ready        without a token
    GET   /v2/models/MODEL[/versions/V]            inputs and outputs
    GET   /v2/models/MODEL[/versions/V]/ready
    POST  /v2/models/MODEL[/versions/V]/infer
    GET   /v2/models/MODEL/watch                   what the watch has seen
    POST  /v2/models/MODEL/labels                  outcomes, by the ids of requests
    POST  /v2/repository/index
    POST  /v2/repository/models/MODEL/load         load the artifact again; needs a token
    GET   /metrics

Bodies are read within limits of size and time. The limit of size holds after decompression too.
"""

from __future__ import annotations

import asyncio
import json
import time
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from importlib.metadata import version
from typing import Any

from fastapi import FastAPI, Request, Response
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from laconic.serve.deployment import Deployment, Repository
from laconic.serve.metrics import Metrics
from laconic.serve.refusal import Refusal, bad_request, bears_token
from laconic.serve.settings import RequestLimits, ServerSettings
from laconic.serve.tensors import read_header_length, read_inference, read_json
from laconic.serve.watch.labels import read_labels

__all__ = ["Bodies", "make_app"]

_VERSION = version("laconic")
_OPEN = ("/v2/health/live", "/v2/health/ready")
_HEADER_BYTES = "inference-header-content-length"

_MB = 1 << 20
_WINDOWS = {"gzip": 31, "deflate": 15}
"""``wbits`` of zlib for the header of gzip, and for its own."""


def make_app(
    repository: Repository, settings: ServerSettings, metrics: Metrics, token: str | None
) -> FastAPI:
    """Make the application; ``repository`` may still be without a model."""

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        yield
        await repository.close()

    app = FastAPI(title="laconic", version=_VERSION, openapi_url=None, lifespan=lifespan)
    routes = _Routes(repository, settings, metrics, token)
    for path in ("/v2/models/{model}", "/v2/models/{model}/versions/{version}"):
        app.add_api_route(path, routes.guarded(routes.metadata), methods=["GET"])
        app.add_api_route(f"{path}/ready", routes.guarded(routes.model_ready), methods=["GET"])
        app.add_api_route(f"{path}/infer", routes.guarded(routes.infer), methods=["POST"])
    for method, path, handler in (
        ("GET", "/v2", routes.server),
        ("GET", _OPEN[0], routes.live),
        ("GET", _OPEN[1], routes.ready),
        ("GET", "/v2/models/{model}/watch", routes.watch),
        ("POST", "/v2/models/{model}/labels", routes.labels),
        ("POST", "/v2/repository/index", routes.index),
        ("POST", "/v2/repository/models/{model}/load", routes.load),
        ("GET", "/metrics", routes.metrics_text),
    ):
        app.add_api_route(path, routes.guarded(handler), methods=[method])
    app.add_exception_handler(HTTPException, _plain_error)
    return app


class _Routes:
    def __init__(
        self, repository: Repository, settings: ServerSettings, metrics: Metrics, token: str | None
    ) -> None:
        self._repository, self._settings, self._metrics = repository, settings, metrics
        self._token = None if token is None else token.encode()
        self._bodies = Bodies(settings.limits)

    def guarded(
        self, handler: Callable[[Request], Awaitable[Response]]
    ) -> Callable[[Request], Awaitable[Response]]:
        """Wrap a handler: check the token before it, and turn a refusal into JSON."""

        async def guarded(request: Request) -> Response:
            try:
                self._check_token(request)
                return await handler(request)
            except Refusal as refusal:
                return _refused(refusal)

        return guarded

    def _check_token(self, request: Request) -> None:
        if request.url.path in _OPEN:
            return
        if not bears_token(request.headers.get("authorization", ""), self._token):
            raise Refusal(401, "Authorization: expected Bearer and the server's token")

    def _deployment(self, request: Request) -> Deployment:
        model, asked = request.path_params["model"], request.path_params.get("version")
        if model != self._settings.model:
            raise Refusal(404, f"no model {model[:80]!r}; this server has {self._settings.model!r}")
        deployment = self._repository.current()
        if asked is not None and asked != deployment.version:
            raise Refusal(
                404, f"no version {asked[:80]!r} of {model!r}; this server has {deployment.version!r}"
            )
        return deployment

    async def server(self, _request: Request) -> Response:
        """Return the name of the server and the protocol's extensions that it has."""
        extensions = ["binary_tensor_data", "model_repository"]
        return _json({"name": "laconic", "version": _VERSION, "extensions": extensions})

    async def live(self, _request: Request) -> Response:
        """Answer that the process lives."""
        return Response()

    async def ready(self, _request: Request) -> Response:
        """Answer 200 while requests are welcome; 503 before the model is there and after a stop."""
        return Response(status_code=200 if self._repository.ready else 503)

    async def model_ready(self, request: Request) -> Response:
        """Answer as ``ready`` does, for this model and version."""
        self._deployment(request)
        return Response(status_code=200 if self._repository.ready else 503)

    async def metadata(self, request: Request) -> Response:
        """Describe inputs and outputs of the model."""
        deployment = self._deployment(request)
        return _json(
            {
                "name": self._settings.model,
                "versions": [deployment.version],
                "platform": "laconic",
                "inputs": deployment.signature.inputs(),
                "outputs": deployment.signature.outputs(),
            }
        )

    async def infer(self, request: Request) -> Response:
        """Score the samples of a request, and count its status."""
        begin = time.monotonic()
        status = 500
        try:
            response = await self._infer(request)
            status = response.status_code
            self._metrics.request_seconds.observe(time.monotonic() - begin)
            return response
        except Refusal as refusal:
            status = refusal.status
            raise
        finally:
            self._metrics.requests.labels(str(status)).inc()

    async def _infer(self, request: Request) -> Response:
        deployment = self._deployment(request)
        deployment.batcher.check_capacity()
        with deployment.accepted(), self._bodies.buffer() as buffer:
            with deployment.batcher.arriving():
                body = await self._bodies.read(request, buffer)
            deployment.batcher.check_capacity()  # others may have arrived meanwhile
            header_bytes = read_header_length(request.headers.get(_HEADER_BYTES), len(body))
            answer = await deployment.infer(read_inference(body, header_bytes))
        if answer.header_bytes is None:
            return Response(answer.body, media_type="application/json")
        headers = {"Inference-Header-Content-Length": str(answer.header_bytes)}
        return Response(answer.body, media_type="application/octet-stream", headers=headers)

    async def watch(self, request: Request) -> Response:
        """Return what the watch has measured, its alerts and its switches."""
        watch = self._deployment(request).watch
        return _json({"enabled": False} if watch is None else {"enabled": True, **watch.report()})

    async def labels(self, request: Request) -> Response:
        """Match labels with the scores of earlier requests."""
        watch = self._deployment(request).watch
        if watch is None:
            raise bad_request("labels: the watch is switched off; start with watch.enabled=true")
        with self._bodies.buffer() as buffer:
            body = await self._bodies.read(request, buffer)
            outcome = watch.label(read_labels(read_json(body, "labels")))
        return _json(outcome)

    async def index(self, _request: Request) -> Response:
        """List the one model that this server has."""
        state = "READY" if self._repository.ready else "UNAVAILABLE"
        loaded = self._repository.current().version
        return _json([{"name": self._settings.model, "version": loaded, "state": state}])

    async def load(self, request: Request) -> Response:
        """Load the artifact again, from where it was loaded first."""
        if self._token is None:
            raise Refusal(403, "load: needs a server with a token; or send the process SIGHUP")
        self._deployment(request)
        return _json({"version": await self._repository.reload()})

    async def metrics_text(self, _request: Request) -> Response:
        """Return all metrics in the text format of Prometheus."""
        self._metrics.waiting.set(self._repository.current().batcher.waiting_samples)
        self._metrics.bodies.set(self._bodies.held_bytes)
        return Response(self._metrics.text(), media_type=self._metrics.content_type)


def _json(tree: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(json.dumps(tree, allow_nan=False), status, headers, "application/json")


def _refused(refusal: Refusal) -> Response:
    headers = {}
    if refusal.retry_after_s is not None:
        headers["Retry-After"] = str(refusal.retry_after_s)
    if refusal.status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    return _json({"error": str(refusal)}, refusal.status, headers)


async def _plain_error(request: Request, error: Exception) -> Response:
    """Answer for paths and methods that do not exist, in the protocol's form."""
    assert isinstance(error, HTTPException)
    text = f"{request.method} {request.url.path[:200]}: {error.detail}"
    return _json({"error": text}, error.status_code, dict(error.headers or {}))


class Bodies:
    """Memory for the bodies of all requests at hand, which together have a limit."""

    def __init__(self, limits: RequestLimits) -> None:
        self._limits = limits
        self._most = int(limits.body_mb * _MB)
        self._most_held = int(limits.bodies_mb * _MB)
        self.held_bytes = 0
        """Bytes of all bodies that are being read, waiting or being scored."""

    @contextmanager
    def buffer(self) -> Iterator[_Buffer]:
        """Count the bytes of one request until the end of the block."""
        buffer = _Buffer(self)
        try:
            yield buffer
        finally:
            self.held_bytes -= buffer.reserved

    async def read(self, request: Request, buffer: _Buffer) -> bytes:
        """Return the body, decompressed. Raises Refusal 400, 408, 413, 415 or 429."""
        encoding = request.headers.get("content-encoding", "identity").strip().lower()
        if encoding not in (*_WINDOWS, "identity"):
            raise Refusal(415, f"Content-Encoding: expected gzip, deflate or none, got {encoding[:40]!r}")
        announced = request.headers.get("content-length", "0")
        if announced.isdigit():
            self._check(int(announced))
        try:
            async with asyncio.timeout(self._limits.body_s):
                body = await self._collect(request, buffer)
        except TimeoutError:
            raise Refusal(
                408, f"request: its body was not there after {self._limits.body_s:g} s; send it faster"
            ) from None
        except ClientDisconnect:
            raise bad_request("request: the client went away") from None
        return body if encoding == "identity" else self._decompress(body, encoding, buffer)

    async def _collect(self, request: Request, buffer: _Buffer) -> bytes:
        chunks: list[bytes] = []
        size = 0
        async for chunk in request.stream():
            size += len(chunk)
            self._check(size)
            buffer.reserve(len(chunk))
            chunks.append(chunk)
        return b"".join(chunks)

    def _check(self, size: int) -> None:
        if size > self._most:
            raise Refusal(
                413,
                f"request: expected a body of at most {self._most} bytes, got {size} or more; send several",
            )

    def _decompress(self, body: bytes, encoding: str, buffer: _Buffer) -> bytes:
        decoder = zlib.decompressobj(_WINDOWS[encoding])
        try:
            plain = decoder.decompress(body, self._most + 1)
        except zlib.error as error:
            raise bad_request(
                f"request: expected a body in {encoding}, got something else: {error}"
            ) from None
        self._check(len(plain))
        if not decoder.eof or decoder.unused_data:
            what = "more bytes behind its end" if decoder.eof else "less than all of it"
            raise bad_request(f"request: expected one stream of {encoding}, got {what}")
        buffer.reserve(len(plain))
        return plain

    def reserve(self, count: int) -> None:
        """Count bytes of a body; Refusal 429 where all bodies together would exceed their limit."""
        if self.held_bytes + count > self._most_held:
            raise Refusal(
                429,
                f"server: {self.held_bytes} bytes of requests are at hand, limit {self._most_held}; try again",
                retry_after_s=1,
            )
        self.held_bytes += count


class _Buffer:
    """Bytes that one request holds."""

    def __init__(self, bodies: Bodies) -> None:
        self._bodies = bodies
        self.reserved = 0

    def reserve(self, count: int) -> None:
        self._bodies.reserve(count)
        self.reserved += count
