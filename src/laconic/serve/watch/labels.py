"""Labels that arrive after the scores, and the normalized entropy that they give.

::

    {"labels": [{"id": "request 7", "label": [0, 1, 1]}, ...]}

A request has one label for each of its samples. If normalized entropy rises above that of the
reference, the world has changed or the precision is to blame. The gap between live scores and the
shadow's, on the same samples, tells the two apart.
"""

from __future__ import annotations

import math
import threading
from collections import OrderedDict, deque
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from laconic.serve.refusal import bad_request
from laconic.serve.tensors import read_id

__all__ = ["EntropyFigures", "Outcomes", "ScoredRequest", "read_labels"]

Floats = NDArray[np.float64]
Scores = NDArray[np.float32]

_SURE = 4.0
_LEAST = 1e-7
_LEAST_PAIRS = 64


def read_labels(tree: dict[str, Any]) -> list[tuple[str, Scores]]:
    """Read ids of requests and their labels; Refusal 400 where they are malformed."""
    entries = tree.get("labels")
    if not isinstance(entries, list) or set(tree) != {"labels"}:
        raise bad_request(
            'labels: expected {"labels": [{"id": ..., "label": [...]}, ...]}, got something else'
        )
    read = []
    for number, entry in enumerate(entries):
        if not isinstance(entry, dict) or set(entry) != {"id", "label"}:
            raise bad_request(f"labels[{number}]: expected an object with id and label")
        name, label = read_id(entry["id"]), entry["label"]
        label = label if isinstance(label, list) else [label]
        if name is None or any(type(value) is not int or value not in (0, 1) for value in label):
            raise bad_request(f"labels[{number}]: expected an id, and labels 0 and 1")
        read.append((name, np.array(label, dtype=np.float32)))
    return read


@dataclass(frozen=True, slots=True)
class EntropyFigures:
    """Normalized entropy on the labeled samples of a window; NaN for what is not defined."""

    samples: int
    entropy: float
    """Normalized entropy of live scores."""

    reference: float
    """Normalized entropy of live scores in the first window."""

    sure_increase: float
    """Relative increase over the reference, less what chance explains."""

    gap: float
    """Normalized entropy of live scores less that of the shadow's, on the same samples."""

    sure_gap: float
    """The gap less what chance explains."""


@dataclass(slots=True, eq=False)
class ScoredRequest:
    """Scores of a request, whose labels and shadow's scores may arrive later."""

    live_B: Scores
    shadow_B: Scores | None = None


class Outcomes:
    """Scores that wait for their labels, and losses of labeled ones; two threads may use it."""

    def __init__(self, *, remembered: int, window: int) -> None:
        self._most, self._window = remembered, window
        self._lock = threading.Lock()
        self._scored: OrderedDict[str, ScoredRequest] = OrderedDict()
        self._samples = 0
        self._rows: deque[tuple[float, float, float]] = deque(maxlen=window)
        self._reference: tuple[float, float] | None = None

    def remember(self, name: str, live_B: Scores) -> ScoredRequest:
        """Keep at least one finite score until its labels arrive, or newer ones need the memory."""
        scored = ScoredRequest(live_B.copy())  # a view would keep its batch
        with self._lock:
            if (old := self._scored.pop(name, None)) is not None:
                self._samples -= old.live_B.size
            self._scored[name] = scored
            self._samples += live_B.size
            while self._samples > self._most:
                self._samples -= self._scored.popitem(last=False)[1].live_B.size
        return scored

    def add_shadow(self, scored: ScoredRequest, shadow_B: Scores) -> None:
        """Add the shadow's scores of a request, NaN where they are not finite.

        The request is not found by its id, which a later one may have too.
        """
        with self._lock:
            scored.shadow_B = np.where(np.isfinite(shadow_B), shadow_B, np.float32(np.nan))

    def label(self, labels: list[tuple[str, Scores]]) -> dict[str, int]:
        """Match labels with scores, each request once. If one is refused, none is matched."""
        matched = unknown = 0
        with self._lock:
            for name, label_B in labels:
                known = self._scored.get(name)
                if known is not None and known.live_B.size != label_B.size:
                    raise bad_request(
                        f"labels: {name[:80]!r}: expected {known.live_B.size} labels, got {label_B.size}"
                    )
            for name, label_B in labels:
                scored = self._scored.pop(name, None)
                if scored is None:
                    unknown += 1
                    continue
                self._samples -= label_B.size
                matched += 1
                self._add(scored, label_B)
        return {"matched": matched, "unknown": unknown}

    def _add(self, scored: ScoredRequest, label_B: Scores) -> None:
        live_B = _losses(scored.live_B, label_B)
        shadow_B = (
            np.full(live_B.size, np.nan) if scored.shadow_B is None else _losses(scored.shadow_B, label_B)
        )
        self._rows.extend(zip(label_B.tolist(), live_B.tolist(), shadow_B.tolist(), strict=True))

    def figures(self) -> EntropyFigures | None:
        """Return figures of the last labeled samples; None until there are enough of them."""
        with self._lock:
            if len(self._rows) < self._window:
                return None
            label_B, live_B, shadow_B = np.array(self._rows).T
        positive = float(label_B.mean())
        if positive in (0.0, 1.0):
            return None
        entropy = -(positive * math.log(positive) + (1 - positive) * math.log1p(-positive))
        normal_B = live_B / entropy
        value, error = float(normal_B.mean()), float(normal_B.std()) / math.sqrt(normal_B.size)
        if self._reference is None:
            self._reference = (value, error)
        reference, reference_error = self._reference
        chance = _SURE * math.hypot(error, reference_error)
        gap_P = ((live_B - shadow_B) / entropy)[np.isfinite(shadow_B)]
        gap = sure_gap = math.nan
        if gap_P.size >= _LEAST_PAIRS:
            gap = float(gap_P.mean())
            sure_gap = gap - _SURE * float(gap_P.std()) / math.sqrt(gap_P.size)
        return EntropyFigures(
            samples=normal_B.size,
            entropy=value,
            reference=reference,
            sure_increase=(value - reference - chance) / reference,
            gap=gap,
            sure_gap=sure_gap,
        )


def _losses(score_B: Scores, label_B: Scores) -> Floats:
    p_B = np.clip(score_B.astype(np.float64), _LEAST, 1 - _LEAST)
    losses: Floats = -np.where(label_B == 1, np.log(p_B), np.log1p(-p_B))
    return losses
