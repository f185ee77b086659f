"""The watch of one deployment: a thread of low priority beside the request path.

::

    observe --> bounded queue --> inputs of all requests --> alerts
                              `-> scores of a share      --> alerts --> blame --> switch
    label ----> outcomes      --> normalized entropy     --> alerts --> blame --> switch

The shadow scores a share of the requests too. A request that the queue cannot hold is dropped and
counted; no request waits for the watch. Input drift alone switches nothing: a model in fp32 knows
the new inputs no better.

Clients must not be able to blind the watch, nor to fill its memory. Samples whose shadow's score is
not finite are counted and left out of windows and evidence. Inputs that are kept are bounded in
bytes, whatever the number of samples.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
import random
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from laconic.errors import LaconicError
from laconic.files import finite
from laconic.serve.engine import Engine
from laconic.serve.metrics import Metrics
from laconic.serve.query import Query, merged
from laconic.serve.settings import Watching
from laconic.serve.watch.input_drift import FeatureFigures, InputDrift
from laconic.serve.watch.labels import Outcomes, ScoredRequest
from laconic.serve.watch.score_drift import MODEL, Evidence, Finding, ScoreDrift, limited, settle

__all__ = ["Alert", "Alerts", "Watch"]

_log = logging.getLogger("laconic.serve.watch")
_KEPT = 200
"""Most alerts, and most findings, that a report has."""

_GATHER_S = 0.02
"""Seconds over which requests are gathered: numpy takes as long for one as for fifty."""
_MOST_AT_ONCE = 1024
_REST = 9.0
"""Pause after each piece of work, in multiples of its time: the watch takes a tenth of a core."""
_NICENESS = 10
_MOST_WAITING_BYTES = 64 << 20
_MOST_SAMPLE_BYTES = 64 << 10
"""Most bytes of inputs that may be kept for each sample."""
Scores = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Alert:
    """A figure of a part, at the moment when it exceeded its limit."""

    unix_s: float
    figure: str
    part: str
    value: float
    limit: float
    request: int
    """Number of requests that the watch had seen by then."""


class Alerts:
    """Alerts are raised when a figure exceeds its limit, and again only after it was within it."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._active: dict[tuple[str, str], Alert] = {}
        self._history: deque[Alert] = deque(maxlen=_KEPT)

    def judge(self, figure: str, part: str, value: float, limit: float, request: int) -> bool:
        """Compare a figure with its limit; return whether there is a new alert.

        NaN is no figure: it neither raises an alert nor ends one.
        """
        key = (figure, part)
        self._metrics.drift.labels(figure, part).set(value)
        if math.isnan(value):
            return False
        if value <= limit:
            if self._active.pop(key, None) is not None:
                _log.info("%s of %s is within its limit again: %.4g, limit %.4g", figure, part, value, limit)
            return False
        if key in self._active:
            return False
        alert = Alert(time.time(), figure, part, value, limit, request)
        self._active[key] = alert
        self._history.append(alert)
        self._metrics.alerts.labels(figure, part).inc()
        _log.warning("alert: %s of %s is %.4g, limit %.4g", figure, part, value, limit)
        return True

    def report(self) -> dict[str, Any]:
        """Return the alerts that last, and the latest ones."""
        return {
            "active": [asdict(alert) for alert in list(self._active.values())],
            "alerts": [asdict(alert) for alert in list(self._history)],
        }


@dataclass(frozen=True, slots=True, eq=False)
class _Seen:
    query: Query
    live_B: Scores
    sampled: bool
    scored: ScoredRequest | None
    """Scores that wait for labels; None where the client got no scores."""

    @property
    def bytes(self) -> int:
        """Bytes of the inputs."""
        return self.query.dense_BF.nbytes + self.query.ids_L.nbytes + self.query.lengths_TB.nbytes


class Watch:
    """The watch of one engine; ``switch`` is called in its thread, with the engine to answer next.

    ``observe``, ``label`` and ``report`` return at once.
    """

    def __init__(
        self, engine: Engine, settings: Watching, metrics: Metrics, switch: Callable[[Engine], None]
    ) -> None:
        self._live, self._settings, self._metrics, self._switch = engine, settings, metrics, switch
        self._shadow: Engine | None = None
        schema = engine.signature.schema
        self._inputs = InputDrift(
            schema, reference=settings.reference, window=settings.window, population=engine.population
        )
        self._scores = ScoreDrift(settings.window)
        self._outcomes = Outcomes(remembered=settings.remembered, window=settings.labels)
        self._alerts = Alerts(metrics)
        self._evidence: deque[tuple[Query, Scores]] = deque()
        self._findings: deque[Finding] = deque(maxlen=_KEPT)
        self._latest_inputs: dict[str, FeatureFigures] = {}
        self._requests = self._dropped = self._sampled = self._since_settled = 0
        self._live_not_finite = self._shadow_not_finite = 0
        self._trouble: str | None = None
        self._random = random.Random()
        self._lock = threading.Lock()
        self._queue: deque[_Seen] = deque()
        self._waiting = self._waiting_bytes = 0
        self._work = threading.Event()
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="laconic-watch", daemon=True)
        self._thread.start()

    def observe(self, name: str, query: Query, live_B: Scores) -> None:
        """Show the watch a request and its scores."""
        self._requests += 1
        if not query.samples:
            return
        strange = int(np.count_nonzero(~np.isfinite(live_B)))
        self._live_not_finite += strange
        scored = None if strange else self._outcomes.remember(name, live_B)
        seen = _Seen(query, live_B, self._random.random() < self._settings.share, scored)
        with self._lock:
            fits = self._fits(seen)
            if fits:
                self._queue.append(seen)
                self._waiting += query.samples
                self._waiting_bytes += seen.bytes
        if fits:
            self._work.set()
        else:
            self._dropped += 1
            self._metrics.watch_dropped.inc()

    def label(self, labels: list[tuple[str, Scores]]) -> dict[str, int]:
        """Show the watch labels of earlier requests; return how many requests were matched."""
        matched = self._outcomes.label(labels)
        self._work.set()
        return matched

    def report(self) -> dict[str, Any]:
        """Return what was seen, as values that JSON has."""
        scores, entropy = self._scores.figures(), self._outcomes.figures()
        report = {
            "state": self._state(),
            "requests": self._requests,
            "dropped": self._dropped,
            "sampled": self._sampled,
            "not_finite": {"live": self._live_not_finite, "shadow": self._shadow_not_finite},
            "scores": None if scores is None else asdict(scores),
            "inputs": {name: asdict(found) for name, found in list(self._latest_inputs.items())},
            "outcomes": None if entropy is None else asdict(entropy),
            "findings": [asdict(finding) for finding in list(self._findings)],
            "lowered": list(self._live.lowered),
            **self._alerts.report(),
        }
        return {key: finite(value) for key, value in report.items()}

    async def closed(self) -> None:
        """End the thread; requests that wait are dropped."""
        self._closing = True
        self._work.set()
        await asyncio.to_thread(self._thread.join)

    def _fits(self, seen: _Seen) -> bool:
        return (
            self._trouble is None
            and seen.bytes <= seen.query.samples * _MOST_SAMPLE_BYTES
            and self._waiting + seen.query.samples <= self._settings.waiting
            and self._waiting_bytes + seen.bytes <= _MOST_WAITING_BYTES
        )

    def _state(self) -> str:
        if self._trouble is not None:
            return f"failed: {self._trouble}"
        return "learning inputs" if self._inputs.learning else "watching"

    def _run(self) -> None:
        with suppress(OSError, AttributeError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICENESS)  # on Linux, of a thread
        try:
            self._shadow = self._live.shadow()
        except (LaconicError, OSError) as error:
            _log.warning("no shadow, so scores are not watched: %s", error)
        try:
            while not self._closing:
                self._work.wait()
                self._work.clear()
                time.sleep(_GATHER_S)
                while not self._closing and (group := self._next()):
                    begin = time.monotonic()
                    self._look(group)
                    time.sleep((time.monotonic() - begin) * _REST)
                self._judge_outcomes()
        except Exception as error:  # serving goes on without it, and says so
            self._trouble = f"{type(error).__name__}: {error}"
            _log.exception("the watch has failed; restart to watch again")

    def _next(self) -> list[_Seen]:
        group: list[_Seen] = []
        samples = 0
        with self._lock:
            while self._queue and samples < _MOST_AT_ONCE:
                group.append(self._queue.popleft())
                samples += group[-1].query.samples
                self._waiting_bytes -= group[-1].bytes
            self._waiting -= samples
        return group

    def _look(self, group: list[_Seen]) -> None:
        if (figures := self._inputs.add(merged([seen.query for seen in group]))) is not None:
            self._latest_inputs = figures
            self._judge_inputs(figures)
        sampled = [seen for seen in group if seen.sampled]
        if self._shadow is not None and sampled:
            self._compare(self._shadow, sampled)
            self._judge_scores(self._shadow)

    def _judge_inputs(self, figures: dict[str, FeatureFigures]) -> None:
        for name, found in figures.items():
            self._alerts.judge("psi", name, found.psi, self._settings.psi + found.chance, self._requests)
            limit = self._settings.unknown + found.unknown_chance
            self._alerts.judge("unknown", name, found.unknown, limit, self._requests)

    def _compare(self, shadow: Engine, sampled: list[_Seen]) -> None:
        query = merged([seen.query for seen in sampled])
        shadow_B = shadow.score(*query.features())
        self._sampled += query.samples
        self._metrics.watched.inc(query.samples)
        ends = np.cumsum([seen.query.samples for seen in sampled])[:-1]
        for seen, own_B in zip(sampled, np.split(shadow_B, ends), strict=True):
            if seen.scored is not None:
                self._outcomes.add_shadow(seen.scored, own_B)
        finite_B = np.isfinite(shadow_B)
        strange = int(np.count_nonzero(~finite_B))
        self._shadow_not_finite += strange
        self._metrics.watch_not_finite.inc(strange)
        if strange == shadow_B.size:
            return
        shadow_B = shadow_B[finite_B]
        self._since_settled += shadow_B.size
        self._scores.add(np.concatenate([seen.live_B for seen in sampled])[finite_B], shadow_B)
        self._evidence.append((query.only(finite_B) if strange else query, shadow_B))
        while sum(s_B.size for _, s_B in self._evidence) - self._evidence[0][1].size >= self._settings.window:
            self._evidence.popleft()

    def _judge_scores(self, shadow: Engine) -> None:
        figures = self._scores.figures()
        if figures is None or figures.samples < self._settings.least:
            return
        new = exceeded = False
        for name, value, limit in limited(figures, self._settings, self._live.budget):
            new |= self._alerts.judge(name, MODEL, value, limit, self._requests)
            exceeded |= value > limit
        if new or (exceeded and self._settle_again(shadow)):
            self._settle(shadow)

    def _judge_outcomes(self) -> None:
        figures = self._outcomes.figures()
        if figures is None:
            return
        entropy = figures.sure_increase
        self._alerts.judge("entropy", MODEL, entropy, self._settings.entropy, self._requests)
        if math.isnan(figures.sure_gap) or self._shadow is None:
            return
        new = self._alerts.judge("gap", MODEL, figures.sure_gap, self._settings.harm, self._requests)
        if new or (figures.sure_gap > self._settings.harm and self._settle_again(self._shadow)):
            self._settle(self._shadow)

    def _settle_again(self, shadow: Engine) -> bool:
        """Whether to settle an alert that lasts once more: its cause may have changed since."""
        lately = self._since_settled < self._settings.window
        return self._settings.switching and self._live is not shadow and not lately

    def _settle(self, shadow: Engine) -> None:
        """Find the part to blame, and let an engine without its harm answer from now on."""
        self._since_settled = 0
        query = merged([query for query, _ in self._evidence])
        evidence = Evidence(*query.features(), np.concatenate([s_B for _, s_B in self._evidence]))
        engine, findings = settle(self._live, shadow, evidence, self._settings)
        if self._settings.switching and findings:
            self._live = engine
            self._switch(engine)
            self._scores.clear()
        for finding in findings:
            _log.warning(
                "%s is to blame: harm %.3g, in fp32 %.3g; %s", finding.part, finding.harm_before, finding.harm_after,
                "switched to fp32" if finding.switched else "not switched, for watch.switching is off",
            )  # fmt: skip
            if finding.switched:
                self._metrics.switches.labels(finding.part).inc()
            self._findings.append(finding)
