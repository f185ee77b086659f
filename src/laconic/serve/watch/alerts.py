"""What exceeded its limit, since when, and what was done about it."""

from __future__ import annotations

import logging
import math
import time
from collections import deque
from dataclasses import asdict, dataclass
from typing import Any

from laconic.serve.metrics import Metrics

__all__ = ["Alert", "Alerts"]

_log = logging.getLogger("laconic.serve.watch")
_KEPT = 200


@dataclass(frozen=True, slots=True)
class Alert:
    """One figure of one part, at the moment it exceeded its limit."""

    unix_s: float
    figure: str
    part: str
    value: float
    limit: float
    request: int
    """How many requests the watch had been shown by then."""


class Alerts:
    """An alert is raised when a figure exceeds its limit, and again only after it was within it."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._active: dict[tuple[str, str], Alert] = {}
        self._history: deque[Alert] = deque(maxlen=_KEPT)

    def judge(self, figure: str, part: str, value: float, limit: float, request: int) -> bool:
        """Take a figure; whether this is a new alert. NaN is no figure: nothing begins with it, and nothing ends."""
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
        """Alerts that last, and the latest ones."""
        return {
            "active": [asdict(alert) for alert in list(self._active.values())],
            "alerts": [asdict(alert) for alert in list(self._history)],
        }
