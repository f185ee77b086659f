"""The batcher scores requests together, in one thread, within a latency target.

::

    submit --+--> waiting, first come first served --> batch --> score --> answers
             `--> 429: it could not be answered before the deadline

What arrives while a batch is being scored makes up the next one, so batches grow with the load by
themselves. A batch that is not full waits for requests whose bodies are still arriving, but only as
long as its oldest request can be answered within the target. The measured service time predicts
that. Without such requests a batch does not wait at all.
"""

from __future__ import annotations

import asyncio
import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from laconic.serve.engine import Engine
from laconic.serve.query import Query, merged
from laconic.serve.refusal import Refusal
from laconic.serve.settings import Batching

__all__ = ["Batcher", "ServiceTime"]

MEMORY = 0.97
"""Weight of a measured batch after each further one."""

_log = logging.getLogger("laconic.serve")
_LATELY = 16  # batches over which the usual number of samples is averaged
_TOO_LATE = "server: busy, the request waited for longer than the deadline; try again"


class ServiceTime:
    """Seconds that a batch takes, as a line through (samples, seconds) with coefficients >= 0.

    The line is the least-squares fit in which a measurement has the weight ``MEMORY ** age``. So a
    machine that becomes slower is believed after some tens of batches. Before the first measurement
    every prediction is 0.
    """

    def __init__(self) -> None:
        self._w = self._n = self._nn = self._t = self._nt = 0.0

    def add(self, samples: int, seconds: float) -> None:
        """Take the measured seconds of one batch."""
        self._w = self._w * MEMORY + 1
        self._n = self._n * MEMORY + samples
        self._nn = self._nn * MEMORY + samples * samples
        self._t = self._t * MEMORY + seconds
        self._nt = self._nt * MEMORY + samples * seconds

    def predict(self, samples: int) -> float:
        """Seconds that a batch of this size is expected to take."""
        if not self._w:
            return 0.0
        spread = self._w * self._nn - self._n * self._n
        if spread <= 1e-9 * self._w * self._nn:  # one size only: all of it may be due to the samples
            return self._t / self._n * samples if self._n else self._t / self._w
        slope = (self._w * self._nt - self._n * self._t) / spread
        level = (self._t - slope * self._n) / self._w
        if slope < 0:
            return self._t / self._w
        if level < 0:
            return self._nt / self._nn * samples
        return level + slope * samples


@dataclass(slots=True, eq=False)
class _Waiting:
    query: Query
    future: asyncio.Future[NDArray[np.float32]]
    arrival: float


class Batcher:
    """A queue and the thread that empties it.

    ``submit`` and ``arriving`` must be called on the event loop on which the batcher was made.
    """

    def __init__(self, engine: Engine, settings: Batching, scored: Callable[[int, float], None]) -> None:
        """``scored`` is called in the batcher's thread with samples and seconds of every batch."""
        self.engine = engine
        self.service_time = ServiceTime()
        self.usual_samples = 0.0
        """Mean number of samples of the latest requests."""
        self._settings, self._scored = settings, scored
        self._loop = asyncio.get_running_loop()
        self._changed = threading.Condition()
        self._queue: deque[_Waiting] = deque()
        self._samples = 0
        self._arriving = 0
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="laconic-score", daemon=True)
        self._thread.start()

    @property
    def waiting_samples(self) -> int:
        """Samples that are not scored yet, those of the batch at hand included."""
        return self._samples

    @contextmanager
    def arriving(self) -> Iterator[None]:
        """Announce a request whose body is still being read."""
        self._arriving += 1
        try:
            yield
        finally:
            self._arriving -= 1
            if not self._arriving and self._queue:
                with self._changed:
                    self._changed.notify()

    async def submit(self, query: Query) -> NDArray[np.float32]:
        """Wait for the probabilities; Refusal 429 where they cannot be expected in time."""
        if not query.samples:
            return np.empty(0, dtype=np.float32)
        self.check_capacity(query.samples)
        future: asyncio.Future[NDArray[np.float32]] = self._loop.create_future()
        with self._changed:
            self._queue.append(_Waiting(query, future, time.monotonic()))
            self._samples += query.samples
            self._changed.notify()
        try:
            return await future
        finally:
            # A failed future holds its error, and the error's traceback this frame with the model.
            del future

    def switch(self, engine: Engine) -> None:
        """Score with another model, from the next batch on."""
        self.engine = engine

    async def closed(self) -> None:
        """Score what waits, then end the thread."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        await asyncio.to_thread(self._thread.join)

    def check_capacity(self, samples: int = 1) -> None:
        """Raise Refusal 429 for a request that could not be answered in time.

        The check is cheap, so that it can be made before a body is read.
        """
        limits = self._settings
        if not self._samples:
            return  # nobody is in its way, however large it is
        if self._samples + samples > limits.waiting_samples:
            raise Refusal(429, f"server: {self._samples} samples wait already; try again", retry_after_s=1)
        expected = self._drain_s(self._samples + samples)
        if expected * 1e3 > limits.deadline_ms:
            raise Refusal(
                429,
                f"server: busy, an answer would take {expected * 1e3:.0f} ms, limit {limits.deadline_ms:g} ms; try again",
                retry_after_s=math.ceil(expected),
            )

    def _drain_s(self, samples: int) -> float:
        most = self._settings.max_samples
        full, rest = divmod(samples, most)
        return full * self.service_time.predict(most) + (self.service_time.predict(rest) if rest else 0.0)

    def _run(self) -> None:
        while batch := self._next():
            oldest = time.monotonic() - self._settings.deadline_ms / 1e3
            late = [waiting for waiting in batch if waiting.arrival < oldest]
            taken = [waiting for waiting in batch if waiting.arrival >= oldest]
            outcome = self._score(taken) if taken else []
            # Counted here and not where answers are sent: an event loop that is busy with refusals
            # would refuse still more.
            with self._changed:
                self._samples -= sum(waiting.query.samples for waiting in batch)
            self._loop.call_soon_threadsafe(self._deliver, taken, outcome)
            if late:
                self._loop.call_soon_threadsafe(self._deliver, late, Refusal(429, _TOO_LATE, retry_after_s=1))

    def _next(self) -> list[_Waiting]:
        """Wait for requests and return a batch; an empty one once the batcher is closed."""
        with self._changed:
            while not self._queue:
                if self._closing:
                    return []
                self._changed.wait()
            while (patience := self._patience_s()) > 0:
                self._changed.wait(patience)
            batch = [self._queue.popleft()]
            samples = batch[0].query.samples
            while self._queue and samples + self._queue[0].query.samples <= self._settings.max_samples:
                batch.append(self._queue.popleft())
                samples += batch[-1].query.samples
        return batch

    def _patience_s(self) -> float:
        """Seconds that the batch at the front may still wait for others."""
        if not self._arriving or self._closing:
            return 0.0
        samples = sum(waiting.query.samples for waiting in self._queue)
        if samples >= self._settings.max_samples:
            return 0.0
        begin_by = (
            self._queue[0].arrival + self._settings.latency_ms / 1e3 - self.service_time.predict(samples)
        )
        return begin_by - time.monotonic()

    def _score(self, batch: list[_Waiting]) -> list[NDArray[np.float32]] | Refusal:
        samples = [waiting.query.samples for waiting in batch]
        total = sum(samples)
        begin = time.monotonic()
        try:
            query = merged([waiting.query for waiting in batch])
            probability_B = self.engine.score(*query.features())
        except Exception as error:  # whatever it is, it fails these requests and not the server
            _log.exception("scoring %d samples failed", total)
            return Refusal(500, f"model: scoring failed, {type(error).__name__}; the server's log says why")
        seconds = time.monotonic() - begin
        self.service_time.add(total, seconds)
        self.usual_samples += (total / len(batch) - self.usual_samples) / _LATELY
        self._scored(total, seconds)
        return np.split(probability_B, np.cumsum(samples)[:-1])

    def _deliver(self, batch: list[_Waiting], outcome: list[NDArray[np.float32]] | Refusal) -> None:
        """Answer on the event loop; clients that are gone have canceled their futures."""
        for number, waiting in enumerate(batch):
            if waiting.future.done():
                continue
            if isinstance(outcome, Refusal):
                waiting.future.set_exception(outcome)
            else:
                waiting.future.set_result(outcome[number])
