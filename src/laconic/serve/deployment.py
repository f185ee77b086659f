"""One version of a model at work, and how a reload replaces it without failing a request.

A ``Deployment`` has a queue and a watch, and leads requests through them. ``Repository`` says which
one answers now. A reload loads and warms up a new artifact in a thread while the old one answers.
Then new requests go to the new one, and the old one answers what it has accepted. For that time
both are in memory.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
from numpy.typing import NDArray

from laconic.errors import LaconicError
from laconic.serve.batcher import Batcher
from laconic.serve.engine import Engine
from laconic.serve.metrics import Metrics
from laconic.serve.query import Query, read_query
from laconic.serve.refusal import Refusal, bad_request
from laconic.serve.settings import ServerSettings
from laconic.serve.tensors import Answer, Inference, write_answer
from laconic.serve.watch.watch import Watch

__all__ = ["Deployment", "Repository", "not_finite", "warm_up"]

_WARM_UP_SAMPLES = (1, 16, 64)
_log = logging.getLogger("laconic.serve")


def not_finite(engine: Engine, query: Query, probability_B: NDArray[np.float32]) -> Refusal:
    """Make the refusal of a request with a score that is not finite; it names the first sample.

    The status is 400 where the score is finite once the sample's dense features are 0, else 500.
    """
    sample = int(np.argmin(np.isfinite(probability_B)))
    one = query.only(np.arange(query.samples) == sample)
    _, lookups = one.features()
    if not np.isfinite(engine.score(np.zeros_like(one.dense_BF), lookups)).all():
        return Refusal(500, f"model: sample {sample}: the score is not a number; the artifact may be damaged")
    feature = int(np.argmax(np.abs(one.dense_BF[0])))
    return bad_request(
        f"request: sample {sample}: expected dense features that the model can compute with, got "
        f"{engine.signature.schema.dense[feature]!r} = {one.dense_BF[0, feature]:g} (as the model takes it), which makes the "
        "score not a number; send values as large as those it was trained on"
    )


def warm_up(engine: Engine) -> list[tuple[int, float]]:
    """Score some batches of row 0, so that the first request is not slower than others.

    Returns the number of samples and the seconds of each batch.
    """
    schema = engine.signature.schema
    measured = []
    for samples in _WARM_UP_SAMPLES:
        query = Query(
            np.zeros((samples, len(schema.dense)), dtype=np.float32),
            np.zeros(schema.tables * samples, dtype=np.int64),
            np.ones((schema.tables, samples), dtype=np.int64),
            np.zeros(schema.tables, dtype=np.int64),
        )
        for _ in range(2):
            begin = time.monotonic()
            engine.score(*query.features())
            seconds = time.monotonic() - begin
        measured.append((samples, seconds))
    return measured


class Deployment:
    """An engine with its queue and its watch; made on the event loop that will use it.

    Neither batcher nor watch refers back to it. An old model is large, so its memory must be free
    with its last reference, not when the garbage collector next runs.
    """

    def __init__(
        self, engine: Engine, measured: list[tuple[int, float]], settings: ServerSettings, metrics: Metrics
    ) -> None:
        self.version, self.signature = engine.version, engine.signature
        self._settings, self._metrics = settings, metrics
        self.batcher = Batcher(engine, settings.batching, metrics.scored)
        for samples, seconds in measured:
            self.batcher.service_time.add(samples, seconds)
        self.watch = (
            Watch(engine, settings.watch, metrics, self.batcher.switch) if settings.watch.enabled else None
        )
        self._accepted = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self._names = secrets.token_hex(4)
        self._numbers = itertools.count()

    @contextmanager
    def accepted(self) -> Iterator[None]:
        """Keep this deployment at work until the request has its answer, whatever is reloaded."""
        self._accepted += 1
        self._idle.clear()
        try:
            yield
        finally:
            self._accepted -= 1
            if not self._accepted:
                self._idle.set()

    async def infer(self, inference: Inference) -> Answer:
        """Check a request, wait for its batch and answer; the watch may look at it later."""
        query = read_query(inference.tensors, self.signature, self._settings.limits)
        for table in np.flatnonzero(query.unknown_T):
            name = self.signature.schema.categorical[table].name
            self._metrics.unknown_ids.labels(name).inc(int(query.unknown_T[table]))
        for noted in query.noted:
            self._metrics.raw_values.labels(noted.feature, noted.what).inc(noted.count)
        request_id = inference.id or f"{self._names}-{next(self._numbers)}"
        probability_B = await self.batcher.submit(query)
        if self.watch is not None:
            self.watch.observe(request_id, query, probability_B)
        if not np.isfinite(probability_B).all():
            raise not_finite(self.batcher.engine, query, probability_B)
        return write_answer(
            self._settings.model, self.version, request_id, probability_B, binary=inference.binary_answer
        )

    async def retire(self) -> None:
        """Answer what was accepted, then end the threads; nothing may be accepted any more."""
        await self._idle.wait()
        await self.batcher.closed()
        if self.watch is not None:
            await self.watch.closed()


class Repository:
    """The one model of a server, in its current version."""

    def __init__(self, load: Callable[[], Engine], settings: ServerSettings, metrics: Metrics) -> None:
        self._load, self._settings, self._metrics = load, settings, metrics
        self._current: Deployment | None = None
        self._loading = asyncio.Lock()
        self._retiring: set[asyncio.Task[None]] = set()
        self._draining = False

    @property
    def ready(self) -> bool:
        """Whether requests are welcome: a model is loaded, and the server was not told to stop."""
        return self._current is not None and not self._draining

    def drain(self) -> None:
        """Welcome no more requests, because the server was told to stop."""
        self._draining = True

    def current(self) -> Deployment:
        """Return the deployment that answers; Refusal 503 where there is none."""
        if self._current is None:
            raise Refusal(503, "server: no model is loaded yet; try again", retry_after_s=1)
        return self._current

    async def adopt(self, engine: Engine) -> Deployment:
        """Warm up this engine and let it answer from now on; the old one retires."""
        measured = await asyncio.to_thread(warm_up, engine)
        old, new = self._current, Deployment(engine, measured, self._settings, self._metrics)
        self._current = new
        if old is not None:
            self._metrics.version.remove(self._settings.model, old.version)
            task = asyncio.create_task(old.retire())
            self._retiring.add(task)
            task.add_done_callback(self._retiring.discard)
        self._metrics.version.labels(self._settings.model, new.version).set(1)
        return new

    async def reload(self) -> str:
        """Load the artifact again and return its version; the old one stays where that fails."""
        async with self._loading:
            try:
                new = await self.adopt(await asyncio.to_thread(self._load))
            except (LaconicError, OSError) as error:
                self._metrics.reloads.labels("failed").inc()
                _log.error(
                    "reload failed, version %s stays: %s", self._current and self._current.version, error
                )
                raise bad_request(f"reload: {error}; the version that was loaded stays") from error
            self._metrics.reloads.labels("done").inc()
            _log.info("version %s answers now", new.version)
            return new.version

    async def close(self) -> None:
        """Retire the current deployment, and wait for those that retire already."""
        if self._current is not None:
            await self._current.retire()
        await asyncio.gather(*self._retiring)
