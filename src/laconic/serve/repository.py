"""Which deployment answers now, and how another takes its place without a request noticing.

A new artifact is loaded and warmed up in a thread while the old one answers; then new requests go to the new one, and the
old one answers what it has accepted. For that time both are in memory.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from laconic.errors import LaconicError
from laconic.serve.deployment import Deployment, warm_up
from laconic.serve.metrics import Metrics
from laconic.serve.refusal import Refusal
from laconic.serve.scorer import Scorer
from laconic.serve.settings import ServerSettings

__all__ = ["Repository"]

_log = logging.getLogger("laconic.serve")


class Repository:
    """The one model of a server, in its current version."""

    def __init__(self, load: Callable[[], Scorer], settings: ServerSettings, metrics: Metrics) -> None:
        self._load, self._settings, self._metrics = load, settings, metrics
        self._current: Deployment | None = None
        self._loading = asyncio.Lock()
        self._retiring: set[asyncio.Task[None]] = set()
        self.draining = False

    @property
    def ready(self) -> bool:
        """Whether requests are welcome."""
        return self._current is not None and not self.draining

    def current(self) -> Deployment:
        """Return the deployment that answers; Refusal 503 where there is none."""
        if self._current is None:
            raise Refusal(503, "server: no model is loaded yet; try again", retry_after_s=1)
        return self._current

    async def adopt(self, scorer: Scorer) -> Deployment:
        """Let this scorer answer from now on."""
        measured = await asyncio.to_thread(warm_up, scorer)
        old, new = self._current, Deployment(scorer, measured, self._settings, self._metrics)
        self._current = new
        if old is not None:
            self._metrics.version.remove(self._settings.model, old.version)
            task = asyncio.create_task(old.retire())
            self._retiring.add(task)
            task.add_done_callback(self._retiring.discard)
        self._metrics.version.labels(self._settings.model, new.version).set(1)
        return new

    async def reload(self) -> str:
        """Load the artifact again, one reload at a time; the old version stays where that fails."""
        async with self._loading:
            try:
                new = await self.adopt(await asyncio.to_thread(self._load))
            except (LaconicError, OSError) as error:
                self._metrics.reloads.labels("failed").inc()
                _log.error(
                    "reload failed, version %s stays: %s", self._current and self._current.version, error
                )
                raise Refusal(400, f"reload: {error}; the version that was loaded stays") from error
            self._metrics.reloads.labels("done").inc()
            _log.info("version %s answers now", new.version)
            return new.version

    async def close(self) -> None:
        """Retire everything."""
        if self._current is not None:
            await self._current.retire()
        await asyncio.gather(*self._retiring)
