"""The process that serves: its socket, its signals, and an orderly end.

======== ===================================================================================
SIGTERM  refuse connections, answer what is here, end with 0; a second one ends at once
SIGINT   the same
SIGHUP   load the artifact again
======== ===================================================================================
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
import os
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import FrameType
from typing import Any

import uvicorn

from laconic.errors import PlanError
from laconic.serve.app import make_app
from laconic.serve.connection import Overload, connection_class
from laconic.serve.deployment import Repository
from laconic.serve.engine import Engine
from laconic.serve.metrics import Metrics
from laconic.serve.refusal import Refusal
from laconic.serve.settings import ServerSettings

__all__ = ["Listening", "listen", "serve"]

_log = logging.getLogger("laconic.serve")
_BACKLOG = 1024
_SWITCH_S = 0.0005
"""Longest time that a thread which has scored waits for the interpreter. With Python's own 5 ms a
batch takes several times as long while requests are being read."""


@dataclass(frozen=True, slots=True)
class Listening:
    """A server that is ready for requests."""

    url: str
    """Address with scheme and port."""

    stop: Callable[[], None]
    """Does what SIGTERM does, from any thread."""


def listen(host: str, port: int) -> socket.socket:
    """Bind a socket; PlanError where the address is taken or not this machine's."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        bound = socket.socket(family, kind, protocol)
        try:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            bound.bind(address)
        except OSError:
            bound.close()
            raise
    except OSError as error:
        raise PlanError(
            f"serve: expected to listen on {host} port {port}, got {error.strerror!r}; choose an address of this machine "
            "and a free port"
        ) from error
    return bound


def serve(
    load: Callable[[], Engine],
    settings: ServerSettings,
    *,
    token: str | None = None,
    ready: Callable[[Listening], None] = lambda listening: None,
) -> None:
    """Listen, load, and return once the server was told to stop and has answered everything.

    ``ready`` is called as soon as requests are welcome. Signals work in the main thread only.
    """
    bound = listen(settings.host, settings.port)
    with contextlib.closing(bound):
        asyncio.run(_serve(load, settings, token, bound, ready))


async def _serve(
    load: Callable[[], Engine],
    settings: ServerSettings,
    token: str | None,
    bound: socket.socket,
    ready: Callable[[Listening], None],
) -> None:
    sys.setswitchinterval(_SWITCH_S)
    metrics = Metrics()
    repository = Repository(load, settings, metrics)
    await repository.adopt(await asyncio.to_thread(load))  # not kept here: a reload replaces it
    server = _Server(repository, settings, metrics, token)
    host, port = bound.getsockname()[:2]
    if token is None and not ipaddress.ip_address(host).is_loopback:
        _log.warning("listening on %s without a token: everyone who reaches it may ask", host)
    url = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
    loop = asyncio.get_running_loop()

    def stop() -> None:
        loop.call_soon_threadsafe(server.handle_exit, signal.SIGTERM, None)

    server.tell_when_ready(lambda: ready(Listening(url, stop)))
    await server.serve(sockets=[bound])


class _Server(uvicorn.Server):
    def __init__(
        self, repository: Repository, settings: ServerSettings, metrics: Metrics, token: str | None
    ) -> None:
        limits = settings.limits
        super().__init__(
            uvicorn.Config(
                make_app(repository, settings, metrics, token),
                http=connection_class(limits, metrics, Overload(repository, settings, metrics, token)),
                ws="none",
                loop="asyncio",
                lifespan="on",
                log_config=None,
                access_log=False,
                server_header=False,
                backlog=_BACKLOG,
                timeout_keep_alive=limits.idle_s,
                timeout_graceful_shutdown=max(1, round(limits.drain_s)),
            )
        )
        self._repository = repository
        self._reloading: set[asyncio.Task[str]] = set()
        self._ready: Callable[[], None] = lambda: None

    def tell_when_ready(self, ready: Callable[[], None]) -> None:
        """Call this once, when the server listens."""
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._ready()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Handle signals on the event loop; a stop that was asked for is no failure."""
        loop = asyncio.get_running_loop()
        try:
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.add_signal_handler(number, self.handle_exit, number, None)
            loop.add_signal_handler(signal.SIGHUP, self._reload)
        except (ValueError, RuntimeError):  # not the main thread
            yield
            return
        try:
            yield
        finally:
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                loop.remove_signal_handler(number)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Drain at the first signal, exit at the second."""
        if self.should_exit:
            _log.warning("told to stop twice: leaving at once")
            os._exit(128 + sig)  # threads may be in the middle of a batch
        _log.info("told to stop: answering what is here")
        self._repository.drain()
        self.should_exit = True

    def _reload(self) -> None:
        task = asyncio.get_running_loop().create_task(self._repository.reload())
        self._reloading.add(task)  # asyncio itself would let it be collected
        task.add_done_callback(self._reloading.discard)
        task.add_done_callback(_ignore_refusal)


def _ignore_refusal(task: asyncio.Task[Any]) -> None:
    """Retrieve the result: nobody waits for it, and the log has the reason of a failure."""
    with contextlib.suppress(Refusal, asyncio.CancelledError):
        task.result()
