"""One version of a model at work: its queue, its watch, and the way of a request through them."""

from __future__ import annotations

import itertools
import secrets
import time

import numpy as np

from laconic.serve.batcher import Batch, Batcher
from laconic.serve.metrics import Metrics
from laconic.serve.query import Query, read_query
from laconic.serve.refusal import Refusal
from laconic.serve.scorer import Scorer
from laconic.serve.settings import ServerSettings
from laconic.serve.tensors import Answer, Inference, write_answer
from laconic.serve.watch.watch import Watch

__all__ = ["Deployment", "warm_up"]

_WARM_UP_SAMPLES = (1, 16, 64)


def warm_up(scorer: Scorer) -> list[tuple[int, float]]:
    """Score batches of row 0, so that the first request does not pay for first times: samples, seconds."""
    schema = scorer.signature.schema
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
            scorer.score(*query.features())
            seconds = time.monotonic() - begin
        measured.append((samples, seconds))
    return measured


class Deployment:
    """Made on the event loop that will use it."""

    def __init__(
        self, scorer: Scorer, measured: list[tuple[int, float]], settings: ServerSettings, metrics: Metrics
    ) -> None:
        self.version, self.signature = scorer.version, scorer.signature
        self._settings, self._metrics = settings, metrics
        self.batcher = Batcher(scorer, settings.batching, self._say)
        for samples, seconds in measured:
            self.batcher.service_time.add(samples, seconds)
        self.watch = Watch(scorer, settings.watch, metrics, self._switch) if settings.watch.enabled else None
        self._names = secrets.token_hex(4)
        self._numbers = itertools.count()

    async def infer(self, inference: Inference) -> Answer:
        """Check, wait for a batch, answer; the watch may look at it later."""
        query = read_query(inference.tensors, self.signature, self._settings.limits)
        for table in np.flatnonzero(query.unknown_T):
            name = self.signature.schema.categorical[table].name
            self._metrics.unknown_ids.labels(name).inc(int(query.unknown_T[table]))
        request_id = inference.id or f"{self._names}-{next(self._numbers)}"
        probability_B = await self.batcher.submit(query)
        if self.watch is not None:
            self.watch.observe(request_id, query, probability_B)
        if not np.isfinite(probability_B).all():
            sample = int(np.argmin(np.isfinite(probability_B)))
            raise Refusal(
                500, f"model: sample {sample}: the score is not a number; the artefact may be damaged"
            )
        return write_answer(
            self._settings.model, self.version, request_id, probability_B, binary=inference.binary_answer
        )

    async def retire(self) -> None:
        """Answer what waits, then let go of the threads and the model."""
        await self.batcher.closed()
        if self.watch is not None:
            await self.watch.closed()

    def _switch(self, scorer: Scorer) -> None:
        self.batcher.scorer = scorer

    def _say(self, batch: Batch) -> None:
        self._metrics.batch_seconds.observe(batch.seconds)
        self._metrics.batch_samples.observe(batch.samples)
